"""The demonstration's evaluation of a client's output, and its patience with programs that it runs."""

import sys

import pytest

from demo.__main__ import run_while_it_works
from demo.tour import Tour

WELL = "SENT plain 2\nSENT delayed 2\nLATE 1 3 1\nLATE 5 1 0\nCONSUMED plain 2\nCONSUMED delayed 2\n[main] INFO chatter 7"


def heard(text: str) -> Tour:
    tour = Tour()
    for line in text.splitlines():
        tour.hear(line)
    return tour


def test_a_complete_tour_has_no_complaints() -> None:
    tour = heard(WELL)
    assert tour.complaints() == []
    assert (sum(tour.sent.values()), sum(tour.consumed.values())) == (4, 4)
    assert (tour.late_ms, tour.store_late_ms) == ({1: [3], 5: [1]}, {1: [1], 5: [0]})


@pytest.mark.parametrize(
    ("replaced", "by", "complaint"),
    [
        ("CONSUMED plain 2", "CONSUMED plain 1", "plain: 2 sent, 1 consumed"),
        ("CONSUMED plain 2", "CONSUMED plain 3", "plain: 2 sent, 3 consumed"),
        ("CONSUMED plain 2", "", "plain: 2 sent, 0 consumed"),
        ("LATE 5 1 0", "LATE 5 1 -40", "1 delayed messages came early, by up to 40 ms"),
        ("LATE 5 1 0", "LATE 5 -40 -41", "1 delayed messages came early, by up to 41 ms"),
        ("LATE 5 1 0", "", "2 delayed messages were sent, 1 reported their lateness"),
        ("LATE 5 1 0", "LATE 5 1 0\nDISORDER order 1: step 3 after 1", "out of order: order 1: step 3 after 1"),
    ],
)
def test_complaints_name_the_problem(replaced: str, by: str, complaint: str) -> None:
    assert heard(WELL.replace(replaced, by)).complaints() == [complaint]


def test_client_without_output_is_a_complaint() -> None:
    assert heard("nothing").complaints() == ["the client sent nothing"]


WORKING = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_a_program_may_take_long_while_it_or_its_children_work() -> None:
    work = "import time; end = time.monotonic() + 7\nwhile time.monotonic() < end: sum(range(400_000)); time.sleep(0.1)"
    assert run_while_it_works([sys.executable, "-c", WORKING, work], idle_s=5, max_s=90) == 0


def test_a_program_that_hangs_is_ended() -> None:
    assert run_while_it_works([sys.executable, "-c", "import time; time.sleep(600)"], idle_s=1, max_s=60) is None
    assert run_while_it_works([sys.executable, "-c", "while True: pass"], idle_s=60, max_s=1) is None
