"""Faults that users of other projects reported, in our words, and the test of ours for each.

A fault may have several reports; a test may answer for several faults. What is reported about a
scheme that is not here yet comes with the scheme.
"""

from __future__ import annotations

import ast

import pytest

from parity_tests.project.tree import ROOT

#: The fault, and the test that would fail if we had it.
FAULTS = {
    # Direction, tables and rows.
    "T5's buckets point the wrong way": "twins/test_distances test_t5_buckets_equal_the_reference",
    "buckets past the table": "twins/test_distances test_t5_buckets_equal_the_oracle_at_every",
    "a bucket's logarithm in half precision": "parity/test_mutations test_a_fault_is_caught",
    "position to content the other way": "peers/test_content_peers test_the_paper_s_direction",
    "not relative at all": "rows/test_claims test_positions_shifted_together_change_nothing",
    "a distance one too large": "twins/test_alibi test_a_penalty_of_distance_is_exactly_0",
    "the bias of a memory is not moved by it": "twins/test_distances test_a_bias_behind_a_memory",
    "fewer offsets than Lq + Lk - 1": "twins/test_distances test_lq_plus_lk_minus_one_distances",
    "the centre moves with the length": "twins/test_distances test_one_row_per_distance_whatever",
    "no clipping": "twins/test_distances test_clipped_rows_are_those_of_every_distance",
    "a silent clamp, wrap or NaN": "twins/test_distances test_a_distance_beyond_a_table_that_may",
    "number of heads for head width": "twins/test_distances test_a_table_of_another_width_or_head",
    "as many heads as channels": "twins/test_distances test_as_many_heads_as_channels_hide_no",
    "the last rows of a square for fewer queries": "twins/test_distances test_queries_stand_at_the",
    "queries and keys of no common range": "twins/test_distances test_positions_need_not_be_one",
    "a table that is too small": "parity/test_roster test_wrong_inputs_are_refused_in_words",
    "a table entry that is never read": "parity/test_roster test_the_cases_read_every_table_entry",
    "2-D offsets numbered another way": "twins/test_grids test_offsets_are_the_published_ones",
    "an entry past a 2-D table, or for two offsets": "twins/test_grids test_every_entry_has_an",
    "entries that are no whole numbers": "twins/test_grids test_entries_are_counted_in_whole",
    "a square bias cut for fewer queries": "twins/test_grids test_fewer_queries_read_the_rows_of",
    "a window larger than its map": "twins/test_grids test_a_window_that_shrinks_to_its_map_has",
    "coordinates of another window": "twins/test_grids test_coordinates_are_logarithms_of_what",
    "the same table for all heads, or not": "rows/test_settings test_what_heads_share_is_there",
    # Slopes and penalties.
    "slope times key taken for slope times distance": "twins/test_alibi test_the_two_forms_are_one",
    "a bias that is not 0 at the query": "twins/test_alibi test_the_bias_is_0_at_the_query_and",
    "neighbours merge in half precision": "twins/test_alibi test_neighbours_far_away_stay_apart",
    "a sum of cosines from another frequency": "twins/test_sandwich test_the_sum_from_the_second",
    "a logarithm without its 1": "twins/test_kerple test_the_logarithm_of_known_numbers",
    "slopes sorted, or of a power of two only": "twins/test_alibi test_slopes_of_any_number_of",
    "a layer's factor on the bias": "twins/test_alibi test_no_factor_of_the_layer_touches_the",
    "a bias before or after the scaling": "twins/test_alibi test_the_scale_multiplies_the_bias",
    "slopes without a gradient": "twins/test_alibi test_learned_slopes_begin_at_the_fixed_ones",
    "penalties that turn into rewards": "twins/test_kerple test_numbers_far_below_and_above_0",
    # The shift.
    "the shift leaks the next query's row": "rows/test_claims test_a_query_changes_no_output_but",
    "the literal shift used both ways": "twins/test_distances test_the_literal_shift_agrees_with",
    "the wrong stride of the shift": "twins/test_distances test_the_shift_reads_a_new_column",
    "views of permuted tensors": "rows/test_claims test_strided_views_are_read_like_their_copies",
    # Lengths, caches and padding.
    "a length fixed at construction": "twins/test_layers test_one_instance_serves_every_length",
    "cross-attention crashes or guesses": "twins/test_layers test_cross_attention_counts_from_a",
    "steps differ from the full run": "rows/test_layers test_one_token_at_a_time_equals_the_full",
    "several tokens at once": "rows/test_layers test_rows_of_other_lengths_decode_as_if_alone",
    "one position for all rows of a batch": "twins/test_caches test_rows_of_different_lengths",
    "left padding moves positions": "twins/test_caches test_a_left_padded_row_equals_the_row_alone",
    "eviction moves positions": "rows/test_layers test_dropping_old_tokens_moves_none_of_the",
    "padding of a last chunk becomes keys": "twins/test_caches test_a_last_chunk_padded_to_its",
    "positions guessed from zero keys": "twins/test_caches test_all_zero_keys_keep_their_positions",
    "packed sequences see one another": "rows/test_claims test_sequences_packed_or_padded_into",
    "a new compilation for every step": "twins/test_caches test_twenty_decoding_steps_are_one",
    "a new compilation for every length": "twins/test_caches test_lengths_padded_to_one_size_are",
    # Masks.
    "causal from the top left": "twins/test_masks test_causal_aligns_the_queries_to_the_end",
    "content scores see the future": "rows/test_claims test_a_causal_output_does_not_see_the",
    "rows without any key are NaN": "twins/test_masks test_a_row_that_may_attend_to_nothing_is",
    "a mask constant becomes infinite": "twins/test_masks test_nothing_becomes_infinite_on_the_way",
    "a mask that does not broadcast": "rows/test_claims test_a_mask_of_any_broadcastable_shape_is",
    "padding reads as keys": "twins/test_masks test_a_padded_key_is_never_read",
    # Precision.
    "angles in half precision": "twins/test_rotation test_no_position_is_far_off_as_in_half",
    "buckets by another logarithm": "peers/test_content_peers test_logarithms_in_float32_take",
    "a cast rounds frequencies": "rows/test_layers test_a_layer_cast_to_half_is_the_layer_built_in",
    "another dtype comes out": "rows/test_claims test_the_output_has_the_dtype_of_the_inputs",
    "hard-coded dtypes": "rows/test_layers test_a_layer_in_half_has_all_its_gradients_in_half",
    "promotion to float32 in JAX": "rows/test_claims test_jax_keeps_the_dtype_of_the_inputs",
    "narrow integers wrap": "twins/test_distances test_positions_in_narrow_integers_do_not_wrap",
    "coarse matrix products in a check": "parity/test_roster test_no_product_is_coarse_while_a",
    # Rotation.
    "two layouts of pairs": "twins/test_rotation test_the_two_pair_layouts_have_their_own_values",
    "query heads for key heads, or values moved": "twins/test_rotation test_one_layout_is_the",
    "positions dealt to axes in another order": "twins/test_rope_axes test_sections_in_turn_are",
    "a factor or its ratio": "twins/test_rope_scaling test_two_mscales_are_a_ratio",
    "the slow frequencies left as they are": "twins/test_rope_scaling test_llama3_slows_the_slow",
    "frequencies of the whole head for a part": "twins/test_rope_scaling test_every_share_of_the",
    "the partner in a part": "twins/test_rope_scaling test_the_partner_of_a_channel_follows",
    "scaling that is parsed and not applied": "rows/test_settings test_no_setting_is_ignored",
    "frequencies kept from a longer call": "twins/test_rope_scaling test_a_short_call_after_a_long",
    "tables of angles made anew": "twins/test_rotation test_tables_of_angles_are_made_once_and",
    # Gradients and memory.
    "clamped rows without a gradient": "parity/test_parity test_a_side_stays_within_its_budget",
    "sums that differ between runs": "rows/test_claims test_gradients_are_the_same_bits_each_time",
    "a row's share of pairs": "twins/test_gradients test_a_row_collects_one_share_per_pair",
    "no gradient at odd lengths": "twins/test_gradients test_a_bias_has_its_gradient_at_lengths",
    "a bias that fast attention does not take": "twins/test_peers test_torch_attention_with_a_bias",
    "an [L, L, d] array in JAX": "twins/test_gradients test_no_array_of_pairs_times_width_exists",
    "an [L, L, d] tensor in torch": "twins/test_gradients test_no_tensor_of_pairs_times_width",
    # Weights and settings.
    "buffers in the state dict": "rows/test_layers test_a_layer_stores_what_it_learns_and_nothing",
    "a transpose that square kernels hide": "weights/test_conversion test_square_kernels_are",
    "a table of another grid": "weights/test_resize test_a_table_of_another_window_is_resized_on",
    "a table resized to its own size": "weights/test_resize test_the_same_size_is_the_same_table",
    "resizing to squares only": "weights/test_resize test_grids_are_stretched_as_torch",
    "a position term that is never used": "rows/test_settings test_no_parameter_is_dead",
    "an option without effect": "rows/test_settings test_no_setting_is_ignored",
    "an attention type crashes alone": "peers/test_content_peers test_deberta_v2_agrees",
    "an unknown option is taken": "rows/test_settings test_settings_are_stored_and_unknown_ones",
    "fresh tables of another spread": "twins/test_layers test_fresh_parameters_have_the_stated",
    "numbers that begin elsewhere": "rows/test_layers test_fresh_parameters_are_what_the_settings",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reported_fault_has_a_test(fault: str) -> None:
    file, beginning = FAULTS[fault].split()
    tree = ast.parse((ROOT / "parity_tests" / f"{file}.py").read_text("utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len([name for name in names if name.startswith(beginning)]) == 1, beginning
