"""What is read off a function: its arguments, the type of its body, where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Raw
from pydantic import Field

from dueline.api.answers import LeasedJob
from dueline.client.sending import body_fields
from dueline.worker import Context, TaskWorker, Worker
from dueline.worker.bodies import reader_of
from dueline.worker.handlers import Handler, HandlerLocation, handler_of
from dueline.worker.outcomes import UnfitBody
from dueline.worker.runner import lanes_of


def leased_job(**payload: Any) -> LeasedJob:
    return LeasedJob(
        id="i", topic="t", attempt=1, delivery=1, lease="l", lease_until_ms=1, due_at_ms=0, created_at_ms=0, **payload
    )


def handler(call: Any, **options: Any) -> Handler:
    return handler_of("t", call, HandlerLocation("m", "f"), **options)


class Struct(msgspec.Struct):
    n: int


@dataclass
class Data:
    n: int


class Typed(TypedDict):
    n: int


class Model(pydantic.BaseModel):
    n: int


@pydantic.dataclasses.dataclass
class Validated:
    n: int


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


DOG = Dog(kind="dog")


class Batch(msgspec.Struct):
    models: list[Model]
    last: Model | None = None


class Spelled(str): ...


@pytest.mark.parametrize(
    ("annotation", "payload", "value"),
    [
        (Any, {"body": Raw(b'{"n":1}')}, {"n": 1}),
        (Any, {"body": Raw(b'"x"')}, "x"),
        (Any, {"body_base64": "AAE="}, b"\x00\x01"),
        (Any, {"items": (Raw(b"1"), Raw(b'"b"'))}, [1, "b"]),
        (bytes, {"body_base64": "AAE="}, b"\x00\x01"),
        (bytes, {"body": Raw(b'"\xc3\xa9"')}, "é".encode()),
        (bytes, {"body": Raw(b'{ "n": 1.0 }')}, b'{ "n": 1.0 }'),
        (str, {"body": Raw(b'"x"')}, "x"),
        (str, {"body": Raw(b'{"n":1}')}, '{"n":1}'),
        (str, {"body_base64": "w6k="}, "é"),
        (Struct, {"body": Raw(b'{"n":1}')}, Struct(1)),
        (Data, {"body": Raw(b'{"n":1}')}, Data(1)),
        (Typed, {"body": Raw(b'{"n":1}')}, {"n": 1}),
        (Model, {"body": Raw(b'{"n":1}')}, Model(n=1)),
        (Validated, {"body": Raw(b'{"n":1}')}, Validated(1)),
        (list[Struct], {"items": (Raw(b'{"n":1}'), Raw(b'{"n":2}'))}, [Struct(1), Struct(2)]),
        (list[Model], {"items": (Raw(b'{"n":1}'), Raw(b'{"n":2}'))}, [Model(n=1), Model(n=2)]),
        (list[Validated], {"items": (Raw(b'{"n":"1"}'),)}, [Validated(1)]),
        (Model | None, {"body": Raw(b'{"n":1}')}, Model(n=1)),
        (Model | None, {"body": Raw(b"null")}, None),
        (Model | int, {"body": Raw(b"7")}, 7),
        (dict[str, Model], {"body": Raw(b'{"a":{"n":1}}')}, {"a": Model(n=1)}),
        (list[Annotated[Cat | Dog, Field(discriminator="kind")]], {"items": (Raw(b'{"kind":"dog"}'),)}, [DOG]),
        (Batch, {"body": Raw(b'{"models":[{"n":1}],"last":{"n":2}}')}, Batch([Model(n=1)], Model(n=2))),
        (object, {"body": Raw(b'{"n":1}')}, {"n": 1}),
        (datetime, {"body": Raw(b'"2030-01-01T00:00:00"')}, datetime(2030, 1, 1)),
        (int | None, {"body": Raw(b"null")}, None),
    ],
)
def test_a_body_is_what_the_parameter_says(annotation: Any, payload: dict[str, Any], value: Any) -> None:
    job = leased_job(**payload)
    assert reader_of(annotation, "f")(job) == value
    if annotation not in (Any, str, bytes):
        assert job.body_as(annotation) == value


@pytest.mark.parametrize("annotation", [Struct, Data, Typed, Model, Validated, Model | None, int])
def test_a_body_of_another_type_is_refused(annotation: Any) -> None:
    with pytest.raises(ValueError, match=r"n|int"):
        reader_of(annotation, "f")(leased_job(body=Raw(b'{"n":"one"}')))


def test_a_type_of_pydantic_inside_another_refuses_what_does_not_fit() -> None:
    for annotation, body in ((list[Model], b'[{"n":"one"}]'), (Batch, b'{"models":[{"n":"one"}]}')):
        with pytest.raises(ValueError, match="n"):
            reader_of(annotation, "f")(leased_job(body=Raw(body)))


class Aliased(pydantic.BaseModel):
    order_number: int = Field(alias="orderNumber")


def test_a_model_is_sent_by_the_names_that_it_reads() -> None:
    aliased = Aliased(orderNumber=7)
    assert reader_of(Aliased, "f")(leased_job(body=body_fields(aliased)["body"])) == aliased
    assert reader_of(list[Aliased], "f")(leased_job(body=body_fields([aliased])["body"])) == [aliased]


class Unread(msgspec.Struct):
    inner: Validated  # msgspec would fill it in, and its validators would not run


@pytest.mark.parametrize(
    "annotation", [type[int] | complex, complex, list[complex], Spelled, Unread, Model | Struct, list[Spelled | None]]
)
def test_a_type_that_no_body_can_have_is_refused_when_it_is_named(annotation: Any) -> None:
    def bad(body: Any) -> None: ...

    bad.__annotations__["body"] = annotation
    with pytest.raises(TypeError, match=r"m\.f"):
        handler(bad)


def no_parameter() -> None: ...
def only_body(body: int) -> None: ...
def untyped(body): ...
def both(body: int, context: Context) -> None: ...
def second_untyped(body: int, context) -> None: ...
def only_context(context: Context) -> None: ...
def with_option(body: int, *, extra: int = 5) -> None: ...


def test_a_handler_gets_the_body_the_context_or_both() -> None:
    job = leased_job(body=Raw(b"7"))
    context = Context(job, None)  # type: ignore[arg-type]
    assert handler(no_parameter).arguments(job, context) == ((), {})
    assert handler(only_body).arguments(job, context) == ((7,), {})
    assert handler(untyped).arguments(job, context) == ((7,), {})
    assert handler(both).arguments(job, context) == ((7, context), {})
    assert handler(second_untyped).arguments(job, context) == ((7, context), {})
    assert handler(only_context).arguments(job, context) == ((context,), {})
    assert handler(with_option).arguments(job, context) == ((7,), {})


def close(order_id: int, reason: str = "unpaid") -> tuple[int, str]:
    return order_id, reason


def close_with_context(context: Context, order_id: int, model: Model | None, reason="unpaid") -> tuple[Any, ...]:
    return context.id, order_id, model, reason


@pytest.mark.parametrize(
    ("call", "body", "result"),
    [
        (close, b'{"order_id":1}', (1, "unpaid")),
        (close, b'{"reason":"late","order_id":1,"more":[]}', (1, "late")),
        (close_with_context, b'{"order_id":1,"model":{"n":2}}', ("i", 1, Model(n=2), "unpaid")),
        (close_with_context, b'{"order_id":1,"model":null,"reason":{"a":1}}', ("i", 1, None, {"a": 1})),
    ],
)
def test_a_handler_may_take_the_fields_of_a_body_object(call: Any, body: bytes, result: Any) -> None:
    job = leased_job(body=Raw(body))
    assert handler(call).invoke(job, Context(job, None)) == result  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b"{}", "missing required field `order_id`"),
        (b'{"order_id":"1"}', "Expected `int`, got `str`"),
        (b'{"order_id":1,"reason":null}', "Expected `str`, got `null`"),
        (b"7", "Expected `object`, got `int`"),
        (b"[1]", "Expected `object`, got `array`"),
    ],
)
def test_a_body_without_the_fields_that_a_handler_takes_is_unfit(body: bytes, wrong: str) -> None:
    job = leased_job(body=Raw(body))
    with pytest.raises(UnfitBody, match=rf"m\.f asks for: .*{wrong}"):
        handler(close).invoke(job, Context(job, None))  # type: ignore[arg-type]


def two_contexts(a: int, b: Context, c: Context) -> None: ...
def keyword(a: int, *, b: int) -> None: ...
def by_place(a: int, b: int, /) -> None: ...
def of_no_type(a: int, b: complex) -> None: ...
def context_first(context: Context, a: int) -> None: ...
def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("call", [two_contexts, keyword, by_place, of_no_type, context_first, unknown])
def test_a_function_that_cannot_be_called_with_a_job_is_refused_by_name(call: Any) -> None:
    with pytest.raises(TypeError, match=r"m\.f"):
        handler(call)


async def coroutine(body: int) -> None: ...


def test_coroutines_run_in_the_loop_and_functions_in_threads() -> None:
    assert handler(coroutine).mode == "async"
    assert handler(only_body).mode == "thread"
    assert handler(coroutine, mode="process").mode == "process"
    with pytest.raises(ValueError, match="not a coroutine"):
        handler(only_body, mode="async")
    with pytest.raises(ValueError, match="mode is"):
        handler(only_body, mode="fiber")


def test_what_a_child_process_could_not_find_is_refused() -> None:
    def inner() -> None: ...

    with pytest.raises(ValueError, match="at its top level"):
        Worker().handles("t", mode="process")(inner)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"timeout": "soon"}])
def test_options_that_cannot_be_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        handler(only_body, **options)


def test_topics_share_the_places_of_their_heaviest_mode_unless_they_have_their_own() -> None:
    async_, thread, process = handler(coroutine), handler(only_body), handler(only_body, mode="process")
    own = handler(coroutine, concurrency=3)
    handlers = {"a": [async_], "b": [async_, thread], "c": [thread, process], "d": [own, thread], "e": [async_]}
    places = {"async": 100, "thread": 10, "process": 2}
    assert lanes_of(handlers, places) == [(["d"], 3), (["a", "e"], 100), (["b"], 10), (["c"], 2)]


def test_a_decorated_function_is_still_the_function() -> None:
    worker = Worker("http://127.0.0.1:1")

    @worker.handles("double")
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    assert double(4) == 8
    assert (double.__name__, double.__doc__, double.topic) == ("double", "Twice.", "double")
    assert worker.topics == ("double",)


def test_one_function_may_handle_several_topics() -> None:
    worker = Worker("http://127.0.0.1:1")

    def close(n: int) -> None: ...

    first = worker.handles("a")(close)
    second = worker.handles("b")(first)
    assert (first.topic, second.topic, second.function) == ("a", "b", close)


class Close(TaskWorker):
    type = "order.close"

    def invoke(self, params: Struct) -> None: ...


class CloseToo(TaskWorker):
    type = "order.close"
    mode = "process"
    timeout = "5s"
    concurrency = 2

    async def invoke(self, params: str, context: Context) -> None: ...


class Base(TaskWorker):
    """A base of others, without a type."""


class NoInvoke(TaskWorker):
    type = ""


def test_classes_with_a_type_are_found_in_their_modules_in_the_order_of_their_lines() -> None:
    worker = Worker("http://127.0.0.1:1")
    assert worker.find(__name__) == [Close, CloseToo]
    assert worker.topics == ("order.close",)
    first, second = worker._handlers["order.close"]
    assert (first.name, first.mode) == (f"{__name__}.Close", "thread")
    assert (second.mode, second.timeout_s, second.places, second.context) == ("process", 5.0, 2, "context")
    assert worker.find(__name__) == [Close, CloseToo]
    assert len(worker._handlers["order.close"]) == 2, "finding them again binds nothing twice"


def test_a_class_without_type_or_invoke_is_refused_when_it_is_bound_by_hand() -> None:
    class Empty(TaskWorker):
        type = "t"

    with pytest.raises(ValueError, match="no type"):
        Worker().bind(Base)
    with pytest.raises(TypeError, match="no invoke"):
        Worker().bind(Empty)


def test_two_functions_of_one_name_are_two_handlers() -> None:
    def made(worker: Worker) -> None:
        @worker.handles("t")
        def handle(body: int) -> None: ...

    worker = Worker("http://127.0.0.1:1")
    made(worker)
    made(worker)
    assert len(worker._handlers["t"]) == 2


def test_a_handler_without_a_topic_is_refused() -> None:
    with pytest.raises(ValueError, match="name the topic"):
        Worker("http://127.0.0.1:1").handles("")(only_body)


def test_a_decorator_without_a_topic_says_how_to_write_it() -> None:
    with pytest.raises(TypeError, match=r'name the topic, such as @worker\.handles\("only_body"\)'):
        Worker("http://127.0.0.1:1").handles(only_body)  # type: ignore[arg-type]


def test_a_timeout_may_have_several_units() -> None:
    assert handler(only_body, timeout="1h30m").timeout_s == 5400
