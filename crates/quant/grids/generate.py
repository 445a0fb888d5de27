"""Writes the codebooks of the IQ1, IQ2 and IQ3 types, as the `gguf` package has them.

    pip install numpy gguf
    python crates/quant/grids/generate.py

A file has one little-endian 16-bit number for each entry of a codebook, in ascending order: the number of each element's
level, element 0 in the lowest bits; two bits a level for entries of eight elements, three bits for entries of four.
"""

from pathlib import Path

import numpy as np
from gguf import quants

NAMES = {"iq1": "IQ1_S", "iq2_xxs": "IQ2_XXS", "iq2_xs": "IQ2_XS", "iq2_s": "IQ2_S", "iq3_xxs": "IQ3_XXS", "iq3_s": "IQ3_S"}

for name, own in NAMES.items():
    codec = getattr(quants, own)
    codec.init_grid()
    levels = np.searchsorted(np.array(codec.grid_map), codec.grid.reshape(codec.grid_shape))
    bits = 2 if codec.grid_shape[1] == 8 else 3
    entries = (levels << (bits * np.arange(levels.shape[1]))).sum(axis=1)
    assert (np.diff(entries) > 0).all()
    (Path(__file__).parent / f"{name}.bin").write_bytes(entries.astype("<u2").tobytes())
