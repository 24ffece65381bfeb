"""What `make test` leaves to `make test-slow`.

CASES        cases of one idea: so many of a test's parameters, evenly spread, are run by default
ELSEWHERE    whole tests whose idea another one, named beside it, has in the default run
"""

from __future__ import annotations

import numpy as np

CASES = {
    "tests/algorithms/test_averaging.py::test_a_run_equals_matrices_written_out": 1,
    "tests/algorithms/test_averaging.py::test_exchanges_are_a_polynomial_of_the_mixing_matrix": 8,
    "tests/algorithms/test_correlated_federated.py"
    "::test_no_pair_of_records_moves_an_update_further_than_certified": 1,
    "tests/algorithms/test_correlated_gradients.py"
    "::test_a_budget_stops_a_run_and_a_shorter_run_costs_less": 1,
    "tests/algorithms/test_correlated_gradients.py"
    "::test_secret_batches_are_not_amplified_with_correlated_noise": 1,
    "tests/algorithms/test_gradient_tracking.py"
    "::test_no_transcript_moves_a_message_further_than_certified": 1,
    "tests/algorithms/test_gradient_tracking.py"
    "::test_noise_free_error_vanishes_on_unbalanced_digraphs": 1,
    "tests/algorithms/test_gradient_tracking.py"
    "::test_trackers_sum_to_gradients_at_every_step_noise_or_not": 1,
    "tests/algorithms/theory/test_gradient_tracking.py::test_lemma_a9_holds_with_norms": 2,
    "tests/audit/test_brute_force.py::test_a_change_declared_in_l1_is_not_paid_for_twice": 2,
    "tests/audit/test_brute_force.py"
    "::test_a_message_carries_the_noise_that_the_certificate_counts": 3,
    "tests/audit/test_brute_force.py::test_a_scalar_quadratic_comes_close_to_the_certificate": 1,
    "tests/audit/test_brute_force.py::test_no_round_of_a_federation_exceeds_its_sensitivity": 1,
    "tests/audit/test_brute_force.py::test_no_transcript_exceeds_the_certificate": 2,
    "tests/audit/test_checking.py::test_hearsays_own_algorithms_pass_in_one_world": 1,
    "tests/audit/test_checking.py::test_planted_faults_are_caught": 1,
    "tests/audit/test_coalitions.py::test_a_coalition_reaches_most_of_its_epsilon_and_no_more": 1,
    "tests/audit/test_coalitions.py::test_faults_of_shared_noise_are_caught_and_named": 1,
    "tests/audit/test_distinguish.py::test_likelihood_ratios_are_exact": 1,
    "tests/audit/test_failing_networks.py::test_no_fault_moves_a_message_beyond_the_certificate": 4,
    "tests/audit/test_faults.py::test_brute_force_catches_wrong_gaps": 1,
    "tests/audit/test_faults.py::test_brute_force_passes_the_code_as_it_is": 1,
    "tests/audit/test_faults.py::test_tests_of_residuals_catch_wrong_noise_too": 3,
    "tests/audit/test_faults.py::test_the_audit_catches_wrong_noise": 1,
    "tests/audit/test_search.py::test_batches_are_as_often_and_as_heavy_as_the_sampler_says": 2,
    "tests/audit/test_search.py"
    "::test_no_search_passes_the_certificate_and_scalar_quadratics_reach_it": 1,
    "tests/audit/test_secret.py::test_a_coin_is_decided_and_the_others_stay": 1,
    "tests/audit/test_thrown.py::test_a_coin_moves_one_message_as_far_as_it_may": 1,
    "tests/audit/test_secret.py::test_likelihood_ratios_of_secret_batches_are_exact": 1,
    "tests/audit/test_shapes.py"
    "::test_sound_noise_of_every_mechanism_passes_and_a_little_less_does_not": 1,
    "tests/cli/test_gossip_package.py::test_it_is_run_certified_verified_and_reported": 1,
    "tests/cli/test_tables.py::test_every_file_is_read_once": 1,
    "tests/deploy/test_arithmetic.py::test_honest_agents_never_reach_the_clip": 3,
    "tests/deploy/test_arithmetic.py::test_no_update_is_off_by_more_than_is_counted": 3,
    "tests/deploy/test_arithmetic.py::test_two_runs_stay_as_close_as_certified": 2,
    "tests/deploy/test_budget.py::test_noise_is_calibrated_so_that_rounding_is_paid_for": 4,
    "tests/deploy/test_budget.py::test_skipping_never_costs_less": 6,
    "tests/deploy/test_budget.py::test_within_finds_the_last_message_that_all_can_afford": 8,
    "tests/deploy/test_coins.py::test_a_round_has_one_batch_whenever_the_agent_dies": 1,
    "tests/deploy/test_equivalence.py::test_every_algorithm_deployed_equals_simulated": 1,
    "tests/deploy/test_equivalence.py::test_secret_batches_rehearsed_are_the_simulators": 1,
    "tests/deploy/test_failing.py"
    "::test_policy_skip_does_what_a_simulation_with_the_same_faults_does": 1,
    "tests/deploy/test_leaks.py::test_no_record_and_no_state_in_what_is_sent_answered_or_logged": 1,
    "tests/deploy/test_network_docs.py::test_every_net_toml_is_accepted_and_has_a_finite_budget": 3,
    "tests/deploy/test_pair_noise.py"
    "::test_a_deployed_certificate_is_the_ideal_one_but_for_rounding": 3,
    "tests/deploy/test_pair_noise.py"
    "::test_messages_are_as_loud_as_planned_and_their_sum_is_quiet": 2,
    "tests/deploy/test_releasing.py::test_a_rehearsed_network_releases_what_a_simulation_does": 1,
    "tests/deploy/test_releasing.py::test_a_restart_counts_no_round_twice": 1,
    "tests/deploy/test_secrets_network.py::test_keys_cross_a_ring_and_every_pair_has_the_same": 1,
    "tests/deploy/test_transport.py::test_a_process_that_forgets_to_close_still_ends": 1,
    "tests/estimators/test_scikit_learn.py::test_the_fast_checks_pass": 1,
    "tests/graphs/test_channels.py::test_every_way_of_mixing_equals_the_dense_product": 5,
    "tests/graphs/test_halo.py::test_what_is_heard_does_not_depend_on_the_number_of_devices": 2,
    "tests/mechanisms/test_factorized.py::test_a_stream_keeps_as_many_vectors_as_it_promises": 1,
    "tests/mechanisms/test_factorized.py"
    "::test_compiled_rounds_outside_the_horizon_are_not_numbers": 2,
    "tests/mechanisms/test_factorized.py::test_covariance_of_the_prefix_sums": 2,
    "tests/mechanisms/test_factorized.py"
    "::test_resuming_at_every_point_gives_the_very_same_noise": 6,
    "tests/mechanisms/test_factorized.py::test_single_precision_streams_agree_to_rounding": 2,
    "tests/mechanisms/test_factorized.py::test_streams_are_the_rows_of_the_product": 3,
    "tests/mechanisms/test_factorized.py::test_the_block_never_changes_the_noise": 2,
    "tests/mechanisms/test_factorized.py::test_the_pure_function_gives_the_same_rows": 3,
    "tests/mechanisms/test_quality.py::test_coordinates_of_one_draw": 2,
    "tests/mechanisms/test_quality.py::test_correlated_noise_is_normal_in_every_round": 2,
    "tests/mechanisms/test_quality.py::test_every_draw_of_a_run_has_a_key_of_its_own": 2,
    "tests/mechanisms/test_quality.py::test_streams_of_an_algorithm": 1,
    "tests/privacy/test_adjacency.py::test_secret_batches_cost_no_more_under_zero_out": 2,
    "tests/privacy/test_adjacency.py"
    "::test_zero_out_costs_no_more_than_replace_and_is_finite_with_it": 6,
    "tests/privacy/test_calibrate.py"
    "::test_laplace_noise_meets_epsilon_at_delta_and_wastes_little": 1,
    "tests/privacy/test_coalitions.py::test_bounds_are_never_above_the_truth": 2,
    "tests/privacy/test_horizon.py"
    "::test_never_below_a_sum_ten_times_as_long_and_within_two_percent": 2,
    "tests/privacy/test_kinds.py::test_deployed_runs_too": 6,
    "tests/privacy/test_kinds.py::test_every_algorithm_is_certified_as_agent_by_agent": 12,
    "tests/privacy/test_sampled.py::test_one_message_against_the_exact_likelihood_ratio": 1,
    "tests/privacy/test_sampled.py::test_the_noise_of_the_design": 1,
    "tests/privacy/test_secret_budgets.py::test_calibrated_noise_costs_what_was_asked_for": 2,
    "tests/privacy/test_secret_budgets.py"
    "::test_every_algorithm_meets_its_target_and_its_own_noise_is_what_it_was": 3,
    "tests/privacy/test_verification.py"
    "::test_what_certify_makes_holds_and_no_number_can_be_lowered": 24,
    "tests/problems/test_declared.py::test_no_transcript_lengthens_a_declared_change": 2,
    "tests/problems/test_hosts.py::test_sums_values_and_scores_are_those_of_jax": 1,
    "tests/problems/test_layers.py::test_convolution_and_its_derivatives_are_the_librarys": 2,
    "tests/problems/test_losses.py::test_values_and_gradients_against_automatic_differentiation": 2,
    "tests/problems/test_models.py::test_initial_logits_are_moderate_and_differ_by_image": 1,
    "tests/problems/test_models.py::test_quickened_modules_have_the_same_values_and_gradients": 1,
    "tests/problems/test_network.py"
    "::test_no_record_moves_a_batch_gradient_by_more_than_its_bound": 1,
    "tests/problems/test_per_record.py"
    "::test_gradients_kept_in_bfloat16_are_the_same_to_the_last_bit": 1,
    "tests/problems/test_per_record.py::test_the_sum_is_that_of_a_plain_loop": 1,
    "tests/problems/test_poisson.py"
    "::test_coins_from_the_operating_system_take_the_place_of_a_key": 1,
    "tests/problems/test_poisson.py::test_faults_are_not_the_slow_version": 1,
    "tests/problems/test_poisson.py"
    "::test_methods_with_a_private_state_are_certified_for_the_heaviest_batch": 1,
    "tests/problems/test_poisson.py::test_the_compiled_batch_is_the_slow_one": 1,
    "tests/problems/test_sampling.py::test_a_cyclic_batch_begins_where_the_last_one_ended": 3,
    "tests/problems/test_sampling.py::test_a_fresh_batch_is_the_plain_mean_of_the_next_records": 3,
    "tests/problems/test_sampling.py::test_drawn_batches_have_the_right_number_of_real_records": 2,
    "tests/problems/test_sampling.py"
    "::test_exposure_and_pattern_are_what_replacing_a_record_shows": 3,
    "tests/problems/test_sampling.py"
    "::test_exposure_and_pattern_of_a_size_are_what_replacing_a_record_shows": 2,
    "tests/problems/test_sampling.py::test_history_is_the_plain_mean_at_every_step": 2,
    "tests/problems/test_sampling.py"
    "::test_one_compiled_program_serves_every_growing_schedule_and_any_horizon": 1,
    "tests/problems/test_sampling.py"
    "::test_the_gradient_of_a_drawn_batch_is_the_mean_of_what_was_drawn": 1,
    "tests/problems/test_softmax.py"
    "::test_a_run_without_noise_learns_and_is_measured_as_its_models_predict": 1,
    "tests/problems/test_stream.py"
    "::test_a_batch_is_the_plain_mean_of_the_first_records_of_its_blocks": 1,
    "tests/problems/test_task.py::test_without_a_test_set_there_are_no_test_metrics": 1,
    "tests/problems/test_zero_out.py::test_every_problem_has_one": 2,
    "tests/release/test_readouts.py::test_the_engine_averages_what_was_sent": 1,
    "tests/release/test_tables.py::test_a_model_of_tables_reads_tables": 1,
    "tests/simulation/test_budget_stop.py::test_no_certificate_is_above_its_budget": 3,
    "tests/simulation/test_costs.py::test_a_message_is_as_long_as_a_deployed_agents": 2,
    "tests/simulation/test_delivery.py::test_every_layout_weighs_what_is_heard": 2,
    "tests/simulation/test_engine.py::test_agents_with_as_many_records_share_a_column": 1,
    "tests/simulation/test_groups.py::test_groups_are_as_good_as_everybody_at_once": 1,
    "tests/simulation/test_sharded.py::test_every_algorithm_on_several_devices_equals_one": 1,
    "tests/simulation/test_sharded.py::test_shared_noise_is_the_same_on_several_devices": 1,
    "tests/simulation/test_shared.py::test_a_rehearsed_agent_draws_the_noise_of_the_simulation": 1,
    "tests/simulation/test_shared.py"
    "::test_noise_has_the_covariance_of_its_proof_and_cancels_in_the_sum": 1,
    "tests/simulation/test_side_by_side.py::test_convolutions_and_their_gradients": 2,
    "tests/test_contract.py::test_declared_magnitudes_are_those_of_the_update": 1,
    "tests/test_contract.py::test_noise_free_network_reaches_the_centralized_optimum": 1,
    "tests/test_contract.py::test_relabelling_agents_permutes_the_result": 2,
    "tests/test_contract.py::test_seeds_side_by_side_equal_seeds_one_by_one": 1,
    "tests/test_contract.py::test_simulator_equals_a_plain_loop_over_agents": 1,
    "tests/test_contract.py::test_traced_once_however_many_chunks": 2,
    "tests/test_contract.py::test_what_is_drawn_and_sent": 3,
    "tests/test_examples.py::test_the_code_on_a_page_runs": 1,
    "tests/test_examples.py::test_the_examples_of_a_module_run": 12,
    "tests/test_numbers.py::test_arguments": 12,
    "tests/test_planning.py::test_never_less_privacy_than_asked": 1,
    "tests/tradeoff/test_rehearsing.py::test_a_damaged_file_is_made_again": 2,
    "tests/tradeoff/test_rehearsing.py::test_a_forged_choice_is_made_again": 2,
    "tests/tradeoff/test_rehearsing.py::test_no_agent_spends_more_than_asked": 1,
    "tests/tradeoff/test_trial.py::test_its_noise_is_as_loud_as_the_engines": 1,
    "tests/tradeoff/test_trial.py::test_without_noise_its_models_are_the_engines": 1,
}

ELSEWHERE = {
    "tests/algorithms/test_asynchronous_gossip.py"
    "::test_the_two_ends_of_one_edge_are_awake_and_all_agents_know_which": (
        "tests/algorithms/test_asynchronous_gossip.py::test_both_ends_go_on_from_the_average"
    ),
    "tests/algorithms/test_correlated_federated.py::test_resuming_continues_the_same_noise": (
        "tests/mechanisms/test_factorized.py"
        "::test_resuming_at_every_point_gives_the_very_same_noise"
    ),
    "tests/algorithms/test_correlated_federated.py::test_the_model_carries_the_stream_noise": (
        "tests/algorithms/test_correlated_federated.py::test_rounds_are_the_papers_lines_6_to_15"
    ),
    "tests/algorithms/test_correlated_gradients.py"
    "::test_message_k_plus_1_carries_row_k_times_the_step_of_its_gradient": (
        "tests/algorithms/test_correlated_gradients.py::test_noise_of_the_wrong_row_is_caught"
    ),
    "tests/algorithms/test_ldp_online.py"
    "::test_tracking_error_falls_at_least_at_the_promised_rate": (
        "tests/algorithms/test_ldp_online.py"
        "::test_full_history_and_statistics_are_the_same_algorithm"
    ),
    "tests/algorithms/test_momentum.py::test_what_is_kept_follows_from_messages": (
        "tests/algorithms/test_momentum.py::test_momentum_is_the_heavy_ball"
    ),
    "tests/algorithms/theory/test_correlated_federated.py"
    "::test_the_measured_regret_stays_below_the_bound": (
        "tests/simulation/test_regret.py::test_regret_of_a_noiseless_run_by_hand"
    ),
    "tests/audit/test_checking.py::test_the_plain_loop_knows_public_coins_and_phases": (
        "tests/test_contract.py::test_simulator_equals_a_plain_loop_over_agents"
    ),
    "tests/audit/test_checking.py::test_the_right_file_passes_the_same_checks": (
        "tests/audit/test_checking.py::test_hearsays_own_algorithms_pass_in_one_world"
    ),
    "tests/audit/test_coalitions.py::test_likelihood_ratios_are_exact_against_coalitions": (
        "tests/audit/test_distinguish.py::test_likelihood_ratios_are_exact"
    ),
    "tests/audit/test_distinguish.py"
    "::test_gaussian_noise_is_audited_at_delta_and_as_a_gaussian_mechanism": (
        "tests/audit/test_secret.py::test_gaussian_secret_batches_have_one_claim_at_their_delta"
    ),
    "tests/audit/test_distinguish.py"
    "::test_subsets_that_a_certificate_takes_as_secret_are_drawn_anew_in_every_run": (
        "tests/audit/test_secret.py::test_likelihood_ratios_of_secret_batches_are_exact"
    ),
    "tests/audit/test_distinguish.py::test_the_bound_hardly_ever_passes_the_certificate": (
        "tests/audit/test_distinguish.py::test_likelihood_ratios_are_exact"
    ),
    "tests/audit/test_distinguish.py"
    "::test_the_ratio_of_one_laplace_message_is_what_one_writes_down": (
        "tests/audit/test_distinguish.py::test_likelihood_ratios_are_exact"
    ),
    "tests/audit/test_dlg.py::test_labels_may_be_known_and_restarts_are_ranked_by_their_fit": (
        "tests/audit/test_dlg.py::test_messages_are_those_of_a_simulation"
    ),
    "tests/audit/test_dlg.py::test_report_shows_every_target_at_every_level": (
        "tests/audit/test_dlg.py::test_messages_are_those_of_a_simulation"
    ),
    "tests/audit/test_dlg.py::test_the_same_call_gives_the_same_image": (
        "tests/audit/test_dlg.py::test_messages_are_those_of_a_simulation"
    ),
    "tests/audit/test_dlg.py::test_what_attacks_sees_nothing_private": (
        "tests/audit/test_dlg.py::test_messages_are_those_of_a_simulation"
    ),
    "tests/audit/test_dlg.py::test_what_cannot_be_attacked_is_refused": (
        "tests/audit/test_dlg.py::test_messages_are_those_of_a_simulation"
    ),
    "tests/audit/test_emptied.py"
    "::test_a_climb_reaches_the_certificate_with_an_empty_record_and_not_the_other_one": (
        "tests/audit/test_emptied.py"
        "::test_an_empty_record_of_a_network_counts_nothing_and_keeps_its_place"
    ),
    "tests/audit/test_emptied.py"
    "::test_no_transcript_moves_a_message_further_than_an_emptied_record_may": (
        "tests/audit/test_emptied.py"
        "::test_an_empty_record_of_a_network_counts_nothing_and_keeps_its_place"
    ),
    "tests/audit/test_emptied.py::test_zero_out_taken_as_half_of_replace_is_caught": (
        "tests/audit/test_emptied.py"
        "::test_an_empty_record_of_a_network_counts_nothing_and_keeps_its_place"
    ),
    "tests/audit/test_search.py::test_no_search_passes_the_certificate_in_three_dimensions": (
        "tests/audit/test_search.py"
        "::test_no_search_passes_the_certificate_and_scalar_quadratics_reach_it"
    ),
    "tests/audit/test_search.py::test_small_steps_reach_the_certificate_on_a_history_too": (
        "tests/audit/test_search.py"
        "::test_no_search_passes_the_certificate_and_scalar_quadratics_reach_it"
    ),
    "tests/audit/test_search.py::test_what_was_found_is_a_pair_of_adjacent_data_sets": (
        "tests/audit/test_search.py"
        "::test_no_search_passes_the_certificate_and_scalar_quadratics_reach_it"
    ),
    "tests/audit/test_secret.py::test_subsets_are_drawn_anew_in_every_run": (
        "tests/audit/test_secret.py::test_likelihood_ratios_of_secret_batches_are_exact"
    ),
    "tests/audit/test_secret.py::test_the_audit_comes_within_a_tenth_of_the_certificate": (
        "tests/audit/test_distinguish.py::test_the_audit_reaches_most_of_a_small_budget"
    ),
    "tests/audit/test_secret.py::test_the_ratio_of_one_message_is_what_one_writes_down": (
        "tests/audit/test_secret.py::test_likelihood_ratios_of_secret_batches_are_exact"
    ),
    "tests/audit/test_several_classes.py"
    "::test_a_search_reaches_the_certificate_and_does_not_pass_it": (
        "tests/audit/test_search.py"
        "::test_no_search_passes_the_certificate_and_scalar_quadratics_reach_it"
    ),
    "tests/cli/test_cli.py::test_a_run_under_zero_out_says_so_and_keeps_it": (
        "tests/problems/test_zero_out.py::test_a_trajectory_does_not_depend_on_it"
    ),
    "tests/cli/test_cli.py::test_gaussian_methods_run_without_a_delta": (
        "tests/cli/test_cli.py::test_ternary_messages_end_at_delta"
    ),
    "tests/cli/test_fit.py::test_errors_of_a_regression_are_in_its_own_unit": (
        "tests/cli/test_fit.py::test_a_regression_predicts_in_its_units"
    ),
    "tests/deploy/test_chaos.py::test_a_kill_at_every_kind_of_moment_changes_nothing": (
        "tests/deploy/test_chaos.py::test_real_noise_is_never_drawn_twice_for_a_message_that_left"
    ),
    "tests/deploy/test_chaos.py::test_a_kill_in_any_exchange_of_a_round_changes_nothing": (
        "tests/deploy/test_chaos.py::test_real_noise_is_never_drawn_twice_for_a_message_that_left"
    ),
    "tests/deploy/test_coins.py::test_coins_that_are_drawn_again_after_a_death_would_be_seen": (
        "tests/deploy/test_coins.py::test_a_round_has_one_batch_whenever_the_agent_dies"
    ),
    "tests/deploy/test_correlated.py::test_rehearsed_agents_send_what_the_simulator_sends": (
        "tests/deploy/test_equivalence.py::test_every_algorithm_deployed_equals_simulated"
    ),
    "tests/deploy/test_equivalence.py"
    "::test_averaging_rounds_deployed_equal_simulated_ones_to_the_last_bit": (
        "tests/deploy/test_equivalence.py::test_every_algorithm_deployed_equals_simulated"
    ),
    "tests/deploy/test_relays.py::test_a_run_with_one_exchange_is_written_and_told_as_before": (
        "tests/deploy/test_relays.py::test_whoever_hears_the_messages_can_compute_every_relay"
    ),
    "tests/deploy/test_relays.py::test_what_a_round_has_drawn_is_there_after_a_stop_in_a_relay": (
        "tests/deploy/test_chaos.py::test_real_noise_is_never_drawn_twice_for_a_message_that_left"
    ),
    "tests/deploy/test_releasing.py"
    "::test_agents_that_rehearse_and_agents_that_do_not_refuse_each_other": (
        "tests/deploy/test_guards.py::test_another_configuration_is_named_before_anything_is_sent"
    ),
    "tests/deploy/test_shared_intruders.py"
    "::test_a_key_that_is_not_carols_is_refused_before_anything_is_sent": (
        "tests/deploy/test_secrets_network.py"
        "::test_keys_that_do_not_match_stop_both_before_any_noise"
    ),
    "tests/deploy/test_shared_runs.py::test_shared_noise_deployed_equals_simulated": (
        "tests/simulation/test_shared.py::test_a_rehearsed_agent_draws_the_noise_of_the_simulation"
    ),
    "tests/deploy/test_shared_runs.py"
    "::test_whoever_waits_for_a_partner_in_vain_stops_in_words_and_goes_on_later": (
        "tests/deploy/test_secrets_network.py::test_who_never_comes_is_named"
    ),
    "tests/deploy/test_tables.py::test_a_rehearsed_network_ends_with_the_models_of_a_simulation": (
        "tests/deploy/test_own_tables.py::test_a_network_of_own_tables"
    ),
    "tests/estimators/test_network.py::test_a_network_by_its_name": (
        "tests/estimators/test_network.py::test_one_table_is_dealt_out"
    ),
    "tests/estimators/test_network.py::test_a_regression_in_the_units_of_its_target": (
        "tests/cli/test_fit.py::test_a_regression_predicts_in_its_units"
    ),
    "tests/experiments/test_p3_estimation.py"
    "::test_numbers_by_declaration_are_marked_in_comparisons": (
        "tests/problems/test_declared.py::test_frozen_is_no_guarantee_for_records"
    ),
    "tests/mechanisms/test_noise.py::test_a_whole_run_uses_every_key_once": (
        "tests/mechanisms/test_quality.py::test_every_draw_of_a_run_has_a_key_of_its_own"
    ),
    "tests/mechanisms/test_quality.py::test_correlated_noise_comes_from_one_key_for_each_column": (
        "tests/mechanisms/test_quality.py::test_every_draw_of_a_run_has_a_key_of_its_own"
    ),
    "tests/mechanisms/test_quality.py::test_the_hole_of_the_simulation_in_single_precision": (
        "tests/mechanisms/test_quality.py::test_the_hole_of_textbook_noise_in_numpy"
    ),
    "tests/privacy/test_factorization.py::test_golden_dense_factorization_for_a_thousand_rounds": (
        "tests/privacy/test_factorization.py"
        "::test_dense_beats_every_other_factorization_and_a_direct_search"
    ),
    "tests/privacy/test_factorization.py::test_searches_find_what_theory_knows": (
        "tests/privacy/test_factorization.py::test_searched_coefficients_never_rise"
    ),
    "tests/privacy/test_sampled.py"
    "::test_a_replaced_record_of_a_deployed_run_against_the_exact_likelihood_ratio": (
        "tests/privacy/test_sampled.py::test_a_replaced_record_against_the_exact_likelihood_ratio"
    ),
    "tests/privacy/test_sampled.py::test_noise_that_is_taken_back_is_not_amplified": (
        "tests/algorithms/test_correlated_gradients.py"
        "::test_secret_batches_are_not_amplified_with_correlated_noise"
    ),
    "tests/privacy/test_sampled.py::test_the_same_as_the_library_called_directly": (
        "tests/privacy/test_sampled.py::test_two_messages_against_a_double_integral"
    ),
    "tests/problems/test_declared.py::test_an_unusable_bound_does_not_hide_a_usable_one": (
        "tests/problems/test_declared.py::test_no_transcript_lengthens_a_declared_change"
    ),
    "tests/problems/test_hosts.py::test_a_run_takes_the_same_path_and_measures_the_same": (
        "tests/problems/test_hosts.py::test_sums_values_and_scores_are_those_of_jax"
    ),
    "tests/problems/test_images.py::test_cifar_has_its_published_counts_and_means": (
        "tests/problems/test_images.py::test_the_problem_keeps_bytes"
    ),
    "tests/problems/test_layers.py::test_group_norm_on_accelerators_is_the_same": (
        "tests/problems/test_layers.py::test_convolution_and_its_derivatives_are_the_librarys"
    ),
    "tests/problems/test_models.py::test_pooling_first_changes_nothing": (
        "tests/problems/test_models.py::test_quickened_modules_have_the_same_values_and_gradients"
    ),
    "tests/problems/test_network.py::test_a_function_without_scores_has_a_loss_and_no_accuracy": (
        "tests/problems/test_network.py::test_metrics_are_those_of_a_plain_loop"
    ),
    "tests/problems/test_network.py::test_a_network_that_is_a_linear_model_takes_its_path": (
        "tests/problems/test_network.py::test_metrics_are_those_of_a_plain_loop"
    ),
    "tests/problems/test_network.py::test_a_run_resumes_where_it_was": (
        "tests/simulation/test_simulating.py"
        "::test_the_metrics_of_a_resumed_run_are_the_same_to_the_last_bit"
    ),
    "tests/problems/test_per_record.py::test_a_microbatch_bounds_the_memory_of_the_program": (
        "tests/problems/test_per_record.py::test_the_sum_is_that_of_a_plain_loop"
    ),
    "tests/problems/test_poisson.py::test_a_resumed_run_is_the_same": (
        "tests/problems/test_poisson.py::test_the_network_runs_it_by_hand"
    ),
    "tests/problems/test_poisson.py::test_each_noise_seed_has_coins_of_its_own": (
        "tests/problems/test_poisson.py::test_the_network_runs_it_by_hand"
    ),
    "tests/problems/test_stream.py::test_a_key_is_a_batch": (
        "tests/problems/test_stream.py"
        "::test_a_batch_is_the_plain_mean_of_the_first_records_of_its_blocks"
    ),
    "tests/problems/test_stream.py::test_every_growing_schedule_runs_the_same_program": (
        "tests/problems/test_sampling.py"
        "::test_one_compiled_program_serves_every_growing_schedule_and_any_horizon"
    ),
    "tests/problems/test_stream.py"
    "::test_labels_are_the_target_seen_through_the_regressors_plus_noise": (
        "tests/problems/test_stream.py::test_regressors_have_the_promised_mean_and_covariance"
    ),
    "tests/release/test_model.py::test_a_network_of_somebody_elses_needs_its_model": (
        "tests/release/test_model.py::test_a_network_of_ours_predicts_from_its_file"
    ),
    "tests/release/test_predicting.py::test_a_released_model_keeps_its_classes": (
        "tests/release/test_predicting.py::test_networks"
    ),
    "tests/release/test_readouts.py::test_gossip_counts_silence_as_silence": (
        "tests/release/test_readouts.py::test_silent_agents_show_what_they_sent_last"
    ),
    "tests/release/test_tables.py::test_a_network_comes_back_whole": (
        "tests/release/test_model.py::test_a_network_of_ours_predicts_from_its_file"
    ),
    "tests/release/test_tables.py::test_a_network_without_a_name_is_in_no_pickle": (
        "tests/release/test_model.py::test_a_network_of_ours_predicts_from_its_file"
    ),
    "tests/report/test_costs.py"
    "::test_runs_stand_where_they_were_last_measured_at_equal_time_and_traffic": (
        "tests/simulation/test_costs.py::test_a_run_has_its_costs_beside_its_metrics"
    ),
    "tests/report/test_html.py::test_large_network": (
        "tests/report/test_plots.py::test_every_kind_of_network_is_drawn_with_its_agents"
    ),
    "tests/report/test_html.py::test_regression_reports_test_error": (
        "tests/report/test_html.py::test_report_says_what_the_certificate_says"
    ),
    "tests/simulation/test_delivery.py::test_chunks_do_not_change_a_fault": (
        "tests/simulation/test_delivery.py::test_the_loop_does_what_a_plain_loop_over_links_does"
    ),
    "tests/simulation/test_devices.py::test_eight_devices_equal_one": (
        "tests/simulation/test_sharded.py::test_every_algorithm_on_several_devices_equals_one"
    ),
    "tests/simulation/test_keys.py::test_noise_of_pairs_cancels_in_the_sum_over_agents": (
        "tests/simulation/test_shared.py"
        "::test_noise_has_the_covariance_of_its_proof_and_cancels_in_the_sum"
    ),
    "tests/simulation/test_metrics.py::test_no_model_inside_the_domain_has_negative_regret": (
        "tests/simulation/test_metrics.py::test_with_clipping_no_model_has_negative_regret"
    ),
    "tests/simulation/test_regret.py::test_the_models_are_those_of_a_session": (
        "tests/simulation/test_regret.py::test_regret_of_a_noiseless_run_by_hand"
    ),
    "tests/simulation/test_sharded.py"
    "::test_messages_that_are_passed_on_are_the_same_on_several_devices": (
        "tests/simulation/test_sharded.py::test_shared_noise_is_the_same_on_several_devices"
    ),
    "tests/simulation/test_shared.py::test_a_pair_of_its_own_is_opposite_at_both_ends": (
        "tests/simulation/test_shared.py"
        "::test_noise_has_the_covariance_of_its_proof_and_cancels_in_the_sum"
    ),
    "tests/simulation/test_shared.py::test_shared_noise_is_fresh_in_every_round_and_field": (
        "tests/simulation/test_shared.py"
        "::test_noise_has_the_covariance_of_its_proof_and_cancels_in_the_sum"
    ),
    "tests/simulation/test_simulating.py"
    "::test_the_averaged_read_out_is_a_running_average_in_numpy": (
        "tests/release/test_readouts.py::test_the_engine_averages_what_was_sent"
    ),
    "tests/test_number_search.py::test_a_short_search_finds_nothing": (
        "tests/test_numbers.py::test_arguments"
    ),
    "tests/test_planning.py::test_a_step_that_never_leaves_the_start_is_not_chosen": (
        "tests/test_planning.py::test_chosen_exponents_beat_every_other_on_the_grid"
    ),
    "tests/tradeoff/test_frontier.py::test_every_row_and_column_is_there": (
        "tests/tradeoff/test_frontier.py"
        "::test_shared_secrets_have_a_row_for_every_number_of_colluders"
    ),
    "tests/tradeoff/test_rehearsing.py::test_neural_networks_have_the_rules_settings": (
        "tests/tradeoff/test_rehearsing.py::test_other_kinds_of_tasks"
    ),
}


def left_to_the_slow(found: dict[str, list]) -> list:
    """The items of `found` (test -> its cases) that are not among the first choice."""
    left = [case for name in ELSEWHERE for case in found.get(name, [])]
    for name, most in CASES.items():
        cases = found.get(name, [])
        kept = set(
            np.linspace(0, len(cases) - 1, min(most, len(cases))).round().astype(int).tolist()
        )
        left += [case for number, case in enumerate(cases) if number not in kept]
    return left
