"""One mail for many comments: ten minutes after the last one, but at most two hours after the first.

    python examples/digest_mail.py

Every comment is sent with the merge key of its reader. The queue collects them in one group, which is due when nothing
was added for `quiet`, or when it is `max_wait` old. The handler gets all comments in one list, in the order sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from dueline.testing.queue import VirtualQueue
from dueline.worker import Context, Worker

worker = Worker()
mails: list[tuple[str, list[str]]] = []


@dataclass
class Comment:
    author: str
    text: str


@worker.handles("digest", retry=["1m", "10m", "1h"])
def mail(comments: list[Comment], context: Context) -> None:
    mails.append((context.merge_key or "", [f"{one.author}: {one.text}" for one in comments]))


def commented(reader: str, author: str, text: str) -> None:
    mail.send(Comment(author, text), merge={"key": reader, "quiet": "10m", "max_wait": "2h"})


def play() -> list[str]:
    lines: list[str] = []

    def show(when: str) -> None:
        lines.extend(
            f"{when}  to {reader}: {len(texts)} comments, {texts[0]} ... {texts[-1]}" for reader, texts in mails
        )
        mails.clear()

    with VirtualQueue() as queue:
        queue.work(worker)
        commented("ann", "bob", "first!")
        queue.clock.advance("9m")
        commented("ann", "cyd", "no, second")
        commented("dan", "bob", "hello dan")
        queue.clock.advance("9m")
        show("18m")
        queue.clock.advance("1m")
        show("19m")
        for minute in range(130):
            commented("ann", "eve", f"minute {minute}")
            queue.clock.advance("1m")
            show(f"{20 + minute}m")
        queue.clock.advance("10m")
        show("later")
    return lines


if __name__ == "__main__":
    print("\n".join(play()))
