"""Dueline inside applications and frameworks. Each module is a thin adapter for one framework.

    service     an asyncio program without a framework
    starlette   lifespans of Starlette and FastAPI
    mounted     the server as an ASGI application inside another one
    django      settings, a client, sends on commit, `manage.py dueline_work`
    flask       an extension, a client, handlers in the application's context, `flask dueline-work`

Only the module named after a framework imports it.
"""
