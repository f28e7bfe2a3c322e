"""Keys and values of the tokens seen so far, for decoding a few tokens at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

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
    query_positions: Int[Tensor, "B L"]
    key_positions: Int[Tensor, "B C"]
    mask: Bool[Tensor, "B 1 L C"]
    filled: Bool[Tensor, "B C"]


@dataclass(frozen=True)
class KVCache:
    """Static buffers with a length per row. Appending returns a new cache.

    A key's position is stored with it: it is neither the slot's number nor a count of what is
    retained, so evicting old tokens moves nobody. Keys are stored unrotated.

    Attributes:
        key: [B, G, C, d], C slots per row.
        value: [B, G, C, d].
        positions: Position of the token in each slot [B, C].
        length: Filled slots of each row [B].
        next_position: Position that the row's next token gets [B].
        features: What the scheme reads of each key's token [B, H, C, e]; None for most schemes.
    """

    key: Float[Tensor, "B G C d"]
    value: Float[Tensor, "B G C d"]
    positions: Int[Tensor, "B C"]
    length: Int[Tensor, " B"]
    next_position: Int[Tensor, " B"]
    features: Float[Tensor, "B H C e"] | None = None

    @classmethod
    def empty(
        cls,
        batch: int,
        capacity: int,
        kv_heads: int,
        head_dim: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        features: tuple[int, int] | None = None,
    ) -> KVCache:
        """A cache of `capacity` slots per row without any token.

        `features` are heads and width of what the scheme reads of each key's token, if anything.
        """
        stored = None
        if features is not None:
            heads, width = features
            stored = torch.zeros(batch, heads, capacity, width, device=device, dtype=dtype)
        shape = (batch, kv_heads, capacity, head_dim)
        return cls(
            key=torch.zeros(shape, device=device, dtype=dtype),
            value=torch.zeros(shape, device=device, dtype=dtype),
            positions=torch.zeros(batch, capacity, device=device, dtype=torch.long),
            length=torch.zeros(batch, device=device, dtype=torch.long),
            next_position=torch.zeros(batch, device=device, dtype=torch.long),
            features=stored,
        )

    def append(
        self,
        key: Float[Tensor, "B G L d"],
        value: Float[Tensor, "B G L d"],
        lengths: Int[Tensor, " rows"] | None = None,
        features: Float[Tensor, "B H L e"] | None = None,
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
                impossible. Where lengths cannot be seen (compiled, vmapped), the keys and values
                of such a row become NaN instead, for as long as they stay.
        """
        B, G, L, d = key.shape
        if (B, G, d) != (self.key.shape[0], self.key.shape[1], self.key.shape[3]):
            raise ShapeError(
                "new keys fit the cache in batch, heads and width [B, G, L, d]",
                got=list(key.shape),
                expected=f"[{self.key.shape[0]}, {self.key.shape[1]}, L, {self.key.shape[3]}]",
            )
        device, C = self.key.device, self.key.shape[2]
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
            lengths = torch.full_like(self.length, L)
        elif tuple(lengths.shape) != (B,):
            raise ShapeError(
                "lengths have one entry per row", got=list(lengths.shape), expected=[B]
            )
        if lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise ShapeError("lengths are integers", got=lengths.dtype, expected="int64")
        lengths = lengths.to(self.length)
        wrong = (self.length + lengths > C) | (lengths < 0) | (lengths > L)
        if _any(wrong):
            raise ShapeError(
                f"each row of the cache has room for its new tokens, 0 <= lengths <= {L}",
                got=f"{self.length.tolist()} tokens stored, {lengths.tolist()} new",
                expected=f"at most {C} in all; drop() some or make the cache larger",
            )
        # Slot s takes new token s - length, if there is one: a gather, so no row can overwrite
        # another one's slots and nothing is written for padding.
        slots = torch.arange(C, device=device)[None]
        token = slots - self.length[:, None]
        new = (token >= 0) & (token < lengths[:, None])
        index = token.clamp(0, L - 1)

        def write(buffer: Tensor, tokens: Tensor) -> Tensor:
            gathered = tokens.to(buffer.dtype).gather(2, index[:, None, :, None].expand_as(buffer))
            written = torch.where(new[:, None, :, None], gathered, buffer)
            return written.masked_fill(wrong[:, None, None, None], torch.nan)

        new_tokens = torch.arange(L, device=device)[None]
        new_positions = self.next_position[:, None] + new_tokens
        cache = KVCache(
            key=write(self.key, key),
            value=write(self.value, value),
            features=None
            if features is None or self.features is None
            else write(self.features, features),
            positions=torch.where(new, new_positions.gather(1, index), self.positions),
            length=self.length + lengths,
            next_position=self.next_position + lengths,
        )
        # Empty slots and padding repeat the last real position, or the first there is: masked, and
        # within every limit.
        last = (cache.next_position - 1).clamp(min=0)[:, None]
        filled = slots < cache.length[:, None]
        real = new_tokens < lengths[:, None]
        return Appended(
            cache,
            query_positions=torch.where(real, new_positions, last),
            key_positions=torch.where(filled, cache.positions, last),
            mask=(real[:, :, None] & filled[:, None, :])[:, None],
            filled=filled,
        )

    def sizes(self, q: Float[Tensor, "B H L d"]) -> Sizes:
        """The sizes of a call in which these queries attend to all slots."""
        B, G, C, d = self.key.shape
        return Sizes(B, q.shape[1], G, q.shape[2], C, d)

    def drop(self, count: int) -> KVCache:
        """Evict the `count` oldest tokens of each row (all, where a row has fewer).

        Raises:
            ShapeError: `count` is negative.
        """
        if count < 0:
            raise ShapeError("count is a number of tokens", got=count, expected=">= 0")

        def kept(buffer: Tensor, slots: int) -> Tensor:
            return buffer.roll(-count, slots)

        return replace(
            self,
            key=kept(self.key, 2),
            value=kept(self.value, 2),
            features=None if self.features is None else kept(self.features, 2),
            positions=kept(self.positions, 1),
            length=(self.length - count).clamp(min=0),
        )


def _any(condition: Bool[Tensor, " B"]) -> bool:
    """Whether any is True; False where values cannot be seen."""
    if torch.compiler.is_compiling():
        return False
    try:
        return bool(condition.any())
    except RuntimeError:  # torch.func.vmap and the meta device refuse .item()
        return False
