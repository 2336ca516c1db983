"""A store with one damaged file: the broker starts, serves every message not hit by the damage and logs what is lost, or it
refuses to start and names the file.

This is a fixed sample; `make damage DAMAGE_ARGS="--every"` flips every bit of the small files.
"""

from tests.broker.damage import Damage, Matrix, failures_of
from tests.support.amount import cases

SEED, FLIPS = 32, 120
FOLDER_SHARE = cases(20, 5)


def in_either_state(damages: list[Damage]) -> list[Damage]:
    """Return each damage of a file to the store after one of its two stops, alternately."""
    alike: dict[tuple[str, str], list[Damage]] = {}
    for one in damages:
        alike.setdefault((one.file, one.how if isinstance(one.how, str) else "flipped"), []).append(one)
    return [both[number % len(both)] for number, both in enumerate(alike.values())]


async def test_every_file_damaged_in_memory() -> None:
    matrix = Matrix()
    await matrix.make()
    try:
        damages = matrix.sample(SEED, FLIPS)
        failures = await failures_of(matrix, cases(in_either_state(damages), damages))
    finally:
        matrix.close()
    assert not failures, "\n" + "\n".join(failures)


async def test_files_damaged_on_a_disk() -> None:
    """The same on a real file system, where a truncated mapped file can kill the process."""
    matrix = Matrix(in_memory=False)
    await matrix.make()
    try:
        failures = await failures_of(matrix, matrix.sample(SEED, 0)[::FOLDER_SHARE])
    finally:
        matrix.close()
    assert not failures, "\n" + "\n".join(failures)


async def test_damage_matrix_detects_lost_messages() -> None:
    """A deleted queue file is rebuilt without loss, and a message that is missing without a log line is reported."""
    matrix = Matrix()
    await matrix.make()
    try:
        assert any(one.file.startswith("commitlog/") for one in matrix.every())
        files = matrix.files["clean"]
        assert {"config/topics.json", "config/consumerOffset.json", "config/timercheck", "checkpoint"} <= set(files)
        damage = Damage("clean", "consumequeue/T0/0/00000000000000000000", "deleted")
        del files["consumequeue/T0/0/00000000000000000000"]
        files.pop("cleanStop.json")
        state, problems = await matrix._lived({**files, "abort": matrix.files["killed"]["abort"]})
        assert not problems and set(state.found) == set(matrix.normal["clean"].found), "the queue is rebuilt from the log"
        found = dict(state.found)
        del found["plain-0"]
        files[damage.file] = matrix.files["killed"][damage.file]
        lines = list(matrix._differences(damage, state._replace(found=found, lines=())))
        assert any("lost in silence: plain-0" in line for line in lines)
    finally:
        matrix.close()
