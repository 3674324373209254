"""Django: a queue configured by the project's settings, sends on commit, and `manage.py dueline_work`.

    INSTALLED_APPS = [..., "dueline.integrations.django"]
    DUELINE = {"URL": "http://127.0.0.1:9277", "WORKER": "shop.tasks.worker"}

    # shop/tasks.py
    from dueline.integrations.django import DjangoWorker

    worker = DjangoWorker()

    @worker.handles("order.close", retry=["10s", "1m", "10m"])
    def close_order(order: int) -> None: ...            # with a usable database connection in its thread

    # a view
    send_on_commit(close_order, order.pk, delay="30m")  # not sent when the transaction is rolled back

`URL` may be a server, a store (redis://...) or embedded:FOLDER. Values missing in DUELINE come from the environment.
"""

from .settings import client
from .work import DjangoWorker, send_on_commit

__all__ = ["DjangoWorker", "client", "send_on_commit"]
