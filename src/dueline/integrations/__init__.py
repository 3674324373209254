"""Dueline inside other people's programs. Thin: each module translates the words of one framework, and decides nothing.

    service     an asyncio program without a framework
    starlette   lifespans of Starlette and FastAPI
    mounted     the server as an ASGI application inside another one
    django      settings, a client, sends on commit, `manage.py dueline_work`
    flask       an extension, a client, handlers in the application's context, `flask dueline-work`

No framework is imported but by the module of its name.
"""
