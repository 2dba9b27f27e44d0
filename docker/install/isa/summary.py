"""Reads CODL-STATS lines and prints one JSON object per compiled kernel: registers, occupancy, spills and the hottest loop's mix."""

import json
import sys

MALI_WARP = {6: 4, 7: 8, 9: 16, 10: 16}


def mix(part, family, arch=0):
    ops = part["ops"]
    if family == "mali":
        fma = sum(n for o, n in ops.items() if o.startswith(("FMA.f32", "FMA.v2f16", "FMA_RSCALE")))
        loads = {o: n for o, n in ops.items() if o.startswith(("LOAD", "LD_", "TEX", "LEA_TEX", "LD_BUFFER", "LD_TEX"))}
        stores = {o: n for o, n in ops.items() if o.startswith(("STORE", "ST_"))}
        extra = {k: part[k] for k in ("fma", "cvt", "sfu", "ls", "t", "tuples", "clauses", "arith", "tex") if k in part}
        if "fma" in part:  # Valhall: Mesa's model of a G78, 64 FMA, 64 CVT, 16 SFU, 4 T and 1 LS a cycle
            c = {
                "fma": part["fma"] / 64,
                "cvt": part["cvt"] / 64,
                "sfu": part["sfu"] / 16,
                "t": part["t"] / 4,
                "ls": part["ls"],
            }
        else:  # Bifrost: 24 tuples, 2 texture, 1 LS a cycle
            c = {"arith": part["arith"] / 24, "t": part["tex"] / 2, "ls": part["ls"]}
        extra["cycles"] = {k: round(v, 3) for k, v in c.items() if v}
        extra["bound"] = max(c, key=c.get)
    else:
        fma = sum(n for o, n in ops.items() if o.startswith("mad.f"))
        loads = {
            o: n
            for o, n in ops.items()
            if o.startswith(("ldg", "ldib", "isam", "sam", "ldc", "ldp", "ldl", "resinfo", "ldu"))
        }
        stores = {o: n for o, n in ops.items() if o.startswith(("stg", "stib", "stp", "stl"))}
        extra = {k: part[k] for k in ("nops", "ss", "sy")}
    return {"instructions": part["instructions"], **extra, "fma": fma, "loads": loads, "stores": stores, "ops": ops}


seen, name = set(), ""
for line in sys.stdin:
    if line.startswith("CODL-KERNEL: "):
        name = line.split(": ", 1)[1].strip()
    if not line.startswith("CODL-STATS: "):
        continue
    s = json.loads(line.split(": ", 1)[1])
    for p in s["parts"]:
        if "" in p["ops"]:
            p["ops"]["mov/cov"] = p["ops"].pop("")
    inner = [p for p in s["parts"] if p["part"] == "inner loop"] or [p for p in s["parts"] if p["part"] == "loop"]
    hot = max(inner, key=lambda p: p["instructions"], default=None)
    o = {"gpu": sys.argv[1], "kernel": name}
    if s["family"] == "mali":
        r = s["work_registers"]
        o |= {
            "arch": s["arch"],
            "registers": r,
            "occupancy": 1.0 if r <= 32 or s["arch"] < 7 else 0.5,
            "spills": s["spills"],
            "fills": s["fills"],
            "scratch_bytes": s["scratch_bytes"],
            "instructions": s["parts"][0]["instructions"],
            "bytes": s["bytes"],
            "warp": MALI_WARP.get(s["arch"]),
        }
        o["whole"] = {k: v for k, v in mix(s["parts"][0], "mali", s["arch"]).items() if k != "ops"}
    else:
        o |= {
            k: s[k]
            for k in (
                "gen",
                "registers_vec4",
                "half_registers",
                "max_waves",
                "waves_possible",
                "wave_size",
                "spilled_dwords",
                "filled_dwords",
                "private_bytes",
                "instructions",
                "nops",
                "sstall",
                "systall",
                "preamble",
                "constlen",
            )
        }
        o["whole"] = {k: v for k, v in mix(s["parts"][0], "adreno").items() if k != "ops"}
        o["occupancy"] = round(s["max_waves"] * s["wave_size"] / (s["waves_possible"] * 128), 3)
    o["loops"] = sum(p["part"] != "kernel" for p in s["parts"])
    if hot:
        m = mix(hot, s["family"], s.get("arch", 0))
        m["fma_share"] = round(m["fma"] / m["instructions"], 3)
        n = sum(m["loads"].values())
        m["fma_per_load"] = round(m["fma"] / n, 2) if n else None
        o["hot_loop"] = m
    text = json.dumps(o)
    if text not in seen:
        seen.add(text)
        print(text)
