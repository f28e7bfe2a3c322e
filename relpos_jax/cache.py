"""Keys and values of the tokens seen so far, for decoding a few tokens at a time."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from relpos.checks import Sizes
from relpos.errors import ShapeError

__all__ = ["Appended", "KVCache"]


class Appended(NamedTuple):
    """What a layer needs to attend after new tokens were appended.

    Attributes:
        cache: The cache with the new tokens.
        query_positions: Positions of the new tokens [B, L].
        key_positions: Positions of all slots [B, C].
        mask: Which slots hold a token, for which new tokens are real [B, 1, L, C].
        filled: Which slots hold a token [B, C].
    """

    cache: KVCache
    query_positions: Int[Array, "B L"]
    key_positions: Int[Array, "B C"]
    mask: Bool[Array, "B 1 L C"]
    filled: Bool[Array, "B C"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["key", "value", "positions", "length", "next_position", "features"],
    meta_fields=[],
)
@dataclass(frozen=True)
class KVCache:
    """Static buffers with a length per row. Appending returns a new cache.

    A key's position is stored with it: it is neither the slot's number nor a count of what is
    retained, so evicting old tokens moves nobody. Keys are stored unrotated.

    Attributes:
        key: [B, C, G, d], C slots per row.
        value: [B, C, G, d].
        positions: Position of the token in each slot [B, C].
        length: Filled slots of each row [B].
        next_position: Position that the row's next token gets [B].
        features: What the scheme reads of each key's token [B, C, H, e]; None for most schemes.
    """

    # Any: JAX also rebuilds the record around placeholders that are no arrays.
    key: Any
    value: Any
    positions: Any
    length: Any
    next_position: Any
    features: Any = None

    @classmethod
    def empty(
        cls,
        batch: int,
        capacity: int,
        kv_heads: int,
        head_dim: int,
        *,
        dtype: DTypeLike = jnp.float32,
        features: tuple[int, int] | None = None,
    ) -> KVCache:
        """A cache of `capacity` slots per row without any token.

        `features` are heads and width of what the scheme reads of each key's token, if anything.
        """
        stored = None if features is None else jnp.zeros((batch, capacity, *features), dtype)
        shape = (batch, capacity, kv_heads, head_dim)
        return cls(
            key=jnp.zeros(shape, dtype),
            value=jnp.zeros(shape, dtype),
            positions=jnp.zeros((batch, capacity), jnp.int32),
            length=jnp.zeros(batch, jnp.int32),
            next_position=jnp.zeros(batch, jnp.int32),
            features=stored,
        )

    def append(
        self,
        key: Float[Array, "B L G d"],
        value: Float[Array, "B L G d"],
        lengths: Int[Array, " rows"] | None = None,
        features: Float[Array, "B L H e"] | None = None,
    ) -> Appended:
        """Add new tokens at the end of each row.

        Args:
            key: Their keys.
            value: Their values.
            lengths: How many of the L tokens of each row are real (the first ones); None means all.
                The others are neither stored nor counted, and attend to nothing.
            features: What the scheme reads of their tokens, if the cache stores that.

        Returns:
            The new cache, positions and mask.

        Raises:
            ShapeError: The shapes are not the cache's, or a row has no room, or a length is
                impossible. Where lengths are traced, the keys and values of such a row become
                NaN instead, for as long as they stay.
        """
        B, L, G, d = key.shape
        if (B, G, d) != (self.key.shape[0], self.key.shape[2], self.key.shape[3]):
            raise ShapeError(
                "new keys fit the cache in batch, heads and width [B, L, G, d]",
                got=list(key.shape),
                expected=f"[{self.key.shape[0]}, L, {self.key.shape[2]}, {self.key.shape[3]}]",
            )
        C = self.key.shape[1]
        if value.shape != key.shape:
            raise ShapeError(
                "new values have the shape of the new keys",
                got=list(value.shape),
                expected=list(key.shape),
            )
        stored = [("keys", key, self.key), ("values", value, self.value)]
        if features is not None and self.features is not None:
            stored.append(("features", features, self.features))
        for name, new, old in stored:
            if new.dtype != old.dtype and new.dtype.itemsize >= old.dtype.itemsize:
                raise ShapeError(
                    f"new {name} must fit the dtype of the cache",
                    got=new.dtype,
                    expected=f"{old.dtype} or narrower; init_cache takes a dtype",
                )
        if lengths is None:
            lengths = jnp.full_like(self.length, L)
        elif lengths.shape != (B,):
            raise ShapeError(
                "lengths have one entry per row", got=list(lengths.shape), expected=[B]
            )
        if not jnp.issubdtype(lengths.dtype, jnp.integer):
            raise ShapeError("lengths are integers", got=lengths.dtype, expected="int32")
        lengths = lengths.astype(self.length.dtype)
        wrong = (self.length + lengths > C) | (lengths < 0) | (lengths > L)
        if _any(wrong):
            raise ShapeError(
                f"each row of the cache has room for its new tokens, 0 <= lengths <= {L}",
                got=f"{self.length.tolist()} tokens stored, {lengths.tolist()} new",
                expected=f"at most {C} in all; drop() some or make the cache larger",
            )
        # Slot s takes new token s - length, if there is one: a gather, so no row can overwrite
        # another one's slots and nothing is written for padding.
        slots = jnp.arange(C, dtype=self.length.dtype)[None]
        token = slots - self.length[:, None]
        new = (token >= 0) & (token < lengths[:, None])
        index = jnp.clip(token, 0, L - 1)

        def write(buffer: Array, tokens: Array) -> Array:
            gathered = jnp.take_along_axis(tokens, index[:, :, None, None], axis=1, mode="clip")
            written = jnp.where(new[:, :, None, None], gathered.astype(buffer.dtype), buffer)
            return jnp.where(wrong[:, None, None, None], jnp.nan, written)

        new_tokens = jnp.arange(L, dtype=self.length.dtype)[None]
        new_positions = self.next_position[:, None] + new_tokens
        placed = jnp.take_along_axis(new_positions, index, axis=1, mode="clip")
        cache = KVCache(
            key=write(self.key, key),
            value=write(self.value, value),
            features=None
            if features is None or self.features is None
            else write(self.features, features),
            positions=jnp.where(new, placed, self.positions),
            length=self.length + lengths,
            next_position=self.next_position + lengths,
        )
        # Empty slots and padding repeat the last real position, or the first there is: masked, and
        # within every limit.
        last = jnp.maximum(cache.next_position - 1, 0)[:, None]
        filled = slots < cache.length[:, None]
        real = new_tokens < lengths[:, None]
        return Appended(
            cache,
            query_positions=jnp.where(real, new_positions, last),
            key_positions=jnp.where(filled, cache.positions, last),
            mask=(real[:, :, None] & filled[:, None, :])[:, None],
            filled=filled,
        )

    def sizes(self, q: Float[Array, "B L H d"]) -> Sizes:
        """The sizes of a call in which these queries attend to all slots."""
        B, C, G, d = self.key.shape
        return Sizes(B, q.shape[2], G, q.shape[1], C, d)

    def drop(self, count: int) -> KVCache:
        """Evict the `count` oldest tokens of each row (all, where a row has fewer).

        Raises:
            ShapeError: `count` is negative.
        """
        if count < 0:
            raise ShapeError("count is a number of tokens", got=count, expected=">= 0")

        def kept(buffer: Array) -> Array:
            return jnp.roll(buffer, -count, axis=1)

        return replace(
            self,
            key=kept(self.key),
            value=kept(self.value),
            features=None if self.features is None else kept(self.features),
            positions=kept(self.positions),
            length=jnp.maximum(self.length - count, 0),
        )


def _any(condition: Bool[Array, " B"]) -> bool:
    """Whether any is True; False where values are traced."""
    return not isinstance(condition, jax.core.Tracer) and bool(condition.any())
