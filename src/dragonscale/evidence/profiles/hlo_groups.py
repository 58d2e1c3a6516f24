"""Which devices an instruction of a serialized program works with: groups and pairs of collectives, shardings of
tensors."""

from dragonscale.evidence.profiles.protobuf import Message

_GROUPED = ("all-", "reduce-scatter", "collective-broadcast", "ragged-all-to-all")


def collective_text(op: Message) -> list[str]:
    """Channel, groups and pairs; groups as they are written: listed, by iota, or by mesh axes."""
    opcode = op.word(2)
    parts = [f"channel_id={op.whole(26)}"] if op.whole(26) > 0 else []
    if (iota := op.one(92)) is not None:
        parts.append(f"replica_groups={_iota(iota)}")
    elif (mesh := op.one(93)) is not None:
        parts.append(f"replica_groups={_mesh_groups(mesh)}")
    elif opcode.startswith(_GROUPED) and not opcode.endswith("-done"):
        listed = op.one(87)
        old = listed.one(2) if listed else None  # an iota list, as it was written for a while
        groups = listed.all(1) if listed else op.all(49)
        told = _iota(old) if old else f"{{{','.join(_braced(each.wholes(1)) for each in groups)}}}"
        parts.append(f"replica_groups={told}")
    if op.has(52):
        pairs = ",".join(f"{{{each.whole(1)},{each.whole(2)}}}" for each in op.all(52))
        parts.append(f"source_target_pairs={{{pairs}}}")
    parts += ["use_global_device_ids=true"] if op.whole(71) else []
    return [*parts, "is_host_transfer=true"] if op.whole(47) else parts


def _iota(groups: Message) -> str:
    """`[2,4]<=[4,2]T(1,0)`."""
    order = groups.wholes(4)
    turned = f"T({','.join(map(str, order))})" if order != sorted(order) else ""
    return f"[{groups.whole(1)},{groups.whole(2)}]<=[{','.join(map(str, groups.wholes(3)))}]{turned}"


def _mesh_groups(groups: Message) -> str:
    """`mesh['x'=2,'y'=4] {'x'}`, with the order of devices where it is not the plain one."""
    mesh = groups.one(1)
    axes = mesh.all(1) if mesh else []
    names = [each.word(1) for each in axes]
    order = ""
    if mesh is not None and (iota := mesh.one(3)) is not None:
        turned = iota.wholes(2)
        if len(iota.wholes(1)) > 1:
            order = f", device_ids=([{','.join(map(str, iota.wholes(1)))}]T({','.join(map(str, turned))}))"
    elif mesh is not None and mesh.has(2):
        order = f", device_ids=({','.join(map(str, mesh.wholes(2)))})"
    told: list[str] = []
    for each in groups.all(2):
        place, part = each.whole(1), each.one(2)
        name = names[place] if 0 <= place < len(names) else str(place)
        told.append(f"'{name}'" + (f":({part.whole(1)}){part.whole(2)}" if part else ""))
    sizes = ",".join(f"'{each.word(1)}'={each.whole(2)}" for each in axes)
    return f"mesh[{sizes}]{order} {{{','.join(told)}}}"


def sharding_text(op: Message) -> list[str]:
    """How a tensor was split: `{replicated}`, `{devices=[2,1,4]<=[8] last_tile_dim_replicate}`; of tuples nothing."""
    found = op.one(40)
    kind = found.whole(1) if found else 2
    if found is None or kind not in (0, 1, 3, 4):
        return []
    if kind != 3:
        device = f" device={(found.wholes(4) or [0])[0]}" if kind == 1 else ""
        return [f"sharding={{{('replicated', 'maximal', '', '', 'manual')[kind]}{device}}}"]
    tiles = ",".join(map(str, found.wholes(3)))
    listed = ",".join(map(str, found.wholes(4)))
    order = found.wholes(10)
    turned = f"T({','.join(map(str, order))})" if order != sorted(order) else ""
    devices = listed or f"<=[{','.join(map(str, found.wholes(9)))}]{turned}"
    return [f"sharding={{devices=[{tiles}]{devices}{' last_tile_dim_replicate' if found.whole(6) else ''}}}"]


def _braced(values: list[int]) -> str:
    return f"{{{','.join(map(str, values))}}}"
