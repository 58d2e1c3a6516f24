"""What leaves a cache first."""

from dragonscale.simulation.pages import AdapterSlots, Tier


def test_an_adapter_in_use_keeps_its_slot() -> None:
    slots = AdapterSlots(2)
    assert [slots.hold(adapter) for adapter in (1, 2, 1)] == [True, True, False]
    assert not slots.fits(3)  # both are in use
    for adapter in (1, 2):
        slots.free(adapter)
    assert slots.fits(3)  # one request still uses 1, and 2 makes place
    assert slots.hold(3)
    assert not slots.fits(2)
    assert not slots.hold(1)


def test_only_unused_adapters_make_place_in_the_order_in_which_they_were_left() -> None:
    slots = AdapterSlots(2)
    for adapter in (1, 2):
        assert slots.hold(adapter)
        slots.free(adapter)
    assert slots.hold(3)  # in place of 1
    assert not slots.hold(2)
    slots.free(3)
    assert slots.hold(1)  # in place of 3
    slots.free(2)
    assert not slots.hold(2)


def test_no_adapter_and_no_slots_cost_nothing() -> None:
    assert AdapterSlots(1).fits(-1)
    assert not AdapterSlots(1).hold(-1)
    assert AdapterSlots(0).fits(7)
    assert not AdapterSlots(0).hold(7)


def test_a_tier_hands_the_block_unused_longest_to_the_one_below() -> None:
    below = Tier(4)
    tier = Tier(4, below)
    for name, size in (("a", 2), ("b", 2), ("a", 2), ("c", 1)):
        tier.keep(name, size)
    assert (list(tier.blocks), tier.pages) == (["a", "c"], 3)
    assert (list(below.blocks), below.pages) == (["b"], 2)
    tier.keep("large", 5)
    assert "large" not in tier.blocks
    tier.keep("full", 1)
    assert (list(tier.blocks), tier.pages) == (["a", "c", "full"], 4)
