"""Rows of the schemes whose position terms read what stands in a token, beyond q and k as such."""

from __future__ import annotations

from relpos.errors import SettingError, ShapeError
from relpos.parity.roster.row import Row, Wrong, replaced
from relpos.schemes import DeBERTa, GatedT5, LowRankBank
from relpos.settings import AttentionSettings

__all__ = ["ROWS"]

ROWS = (
    Row(
        "DeBERTa",
        DeBERTa(width=13, max_distance=12, buckets=8, norm_eps=1e-3),
        representative=True,
        wrong=(
            Wrong(
                "terms",
                SettingError,
                "needs content to position, position to content, or both",
                settings=lambda: DeBERTa(13, c2p=False, p2c=False),
            ),
            Wrong(
                "odd-buckets",
                SettingError,
                "must leave a logarithmic bucket on each side",
                settings=lambda: DeBERTa(13, buckets=7),
            ),
            Wrong(
                "few-buckets",
                SettingError,
                "must leave a logarithmic bucket on each side",
                settings=lambda: DeBERTa(13, buckets=2),
            ),
            Wrong(
                "distance",
                SettingError,
                "must lie beyond the exact buckets",
                settings=lambda: DeBERTa(13, max_distance=129),
            ),
            Wrong("width", SettingError, "counts something", settings=lambda: DeBERTa(0)),
            Wrong(
                "bias",
                SettingError,
                "speaks of a separate projection to position keys",
                settings=lambda: DeBERTa(13, key_bias=False),
            ),
            Wrong(
                "norm",
                SettingError,
                "is added to a variance",
                settings=lambda: DeBERTa(13, norm_eps=-1e-7),
            ),
            Wrong(
                "layer",
                SettingError,
                "is that of the layer's input if the projections are shared",
                settings=lambda: AttentionSettings(12, 3, DeBERTa(13)),
            ),
        ),
    ),
    Row(
        "DeBERTa v1",
        DeBERTa(5, 5, buckets=None, shared=False, key_bias=False, norm_eps=None),
        wrong=(
            Wrong(
                "distance",
                SettingError,
                "counts something",
                settings=lambda: DeBERTa(5, 0, buckets=None),
            ),
        ),
    ),
    Row("DeBERTa c2p", DeBERTa(13, 6, buckets=None, p2c=False, norm_eps=None)),
    Row("DeBERTa p2c", DeBERTa(5, 14, buckets=6, c2p=False, shared=False, norm_eps=1e-7)),
    Row(
        "GatedT5",
        GatedT5(num_buckets=10, max_distance=13),
        D=12,
        representative=True,
        wrong=(
            Wrong(
                "buckets",
                SettingError,
                "must leave an exact bucket on each side",
                settings=lambda: GatedT5(num_buckets=5),
            ),
            Wrong(
                "distance",
                SettingError,
                "must lie beyond the exact buckets",
                settings=lambda: GatedT5(max_distance=80),
            ),
            Wrong(
                "layer",
                SettingError,
                "gate reads an equal part of the input in every head",
                settings=lambda: AttentionSettings(13, 3, GatedT5(), head_dim=4),
            ),
            Wrong(
                "features",
                ShapeError,
                "query_features are what GatedT5 reads of each token and head",
                change=replaced("features", {}),
            ),
        ),
    ),
    Row("GatedT5 causal", GatedT5(7, 11, bidirectional=False), D=12),
    Row(
        "LowRankBank",
        LowRankBank(rank=5, extent=4),
        wrong=(
            Wrong(
                "rank", SettingError, "rank counts something", settings=lambda: LowRankBank(rank=0)
            ),
            Wrong(
                "extent",
                SettingError,
                "extent counts something",
                settings=lambda: LowRankBank(extent=0),
            ),
            Wrong(
                "features",
                ShapeError,
                "query_features are what LowRankBank reads of each token and head",
                change=replaced("features", {}),
            ),
        ),
    ),
    Row("LowRankBank per head", LowRankBank(rank=3, extent=9, per_head=True)),
)
