"""The simulator can fail: it finds each fault that is planted in the engine, by a seed that else holds."""

from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.simulation.plan import plan_of
from tests.simulation.planted import FAULTS, Planted
from tests.simulation.run import run
from tests.simulation.search import MOST, first_seed, replaced
from tests.simulation.shrink import shrunk

pytestmark = pytest.mark.slow


def test_the_list_is_long_enough() -> None:
    assert len(FAULTS) >= 15
    assert max(FAULTS.values()) < MOST


@pytest.mark.of_the_sources
@pytest.mark.parametrize(
    ("planted", "seed"), [pytest.param(*each, id=each[0].__name__) for each in FAULTS.items()]
)
def test_a_planted_fault_is_found(planted: Planted, seed: int) -> None:
    assert run(plan_of(seed)).broken is None
    with planted():
        assert run(plan_of(seed)).broken is not None


def test_a_failing_plan_is_made_shorter_and_still_fails() -> None:
    planted, seed = next(iter(FAULTS.items()))
    with planted():
        whole = run(plan_of(seed))
        found = shrunk(whole.plan, partial(run), most=60)
    assert found.broken is not None
    assert len(found.plan.actions) < len(whole.plan.actions)


def test_the_first_seed_that_finds_a_fault_is_searched_for_and_put_into_the_table() -> None:
    planted, seed = next(iter(FAULTS.items()))
    name = planted.__name__
    with ProcessPoolExecutor(1) as pool:
        assert first_seed(pool, name, processes=1) == seed
    table = f"    {name}: 1234,\n    another_{name}: 5,\n"
    assert replaced(table, name, seed) == f"    {name}: {seed},\n    another_{name}: 5,\n"
