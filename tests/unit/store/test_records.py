from dueline.engine.job import BodyKind
from dueline.store.valkey import codec


def test_a_record_that_was_cut_off_in_its_head_is_shown_as_damaged() -> None:
    for size in range(17):
        record = codec.read_record(bytes(size))
        assert (record.intact, record.kind, record.body) == (False, BodyKind.BYTES, bytes(size))
