"""Cases of one idea: so many of a test's parameters, evenly spread, are run by default;
`make test-slow` runs the rest.
"""

from __future__ import annotations

import numpy as np

CASES = {
    "tests/audit/test_checking.py::test_planted_faults_are_caught": 5,
    "tests/test_contract.py::test_declared_magnitudes_are_those_of_the_update": 4,
    "tests/algorithms/test_correlated_federated.py::test_the_model_carries_the_stream_noise": 3,
    "tests/algorithms/test_gradient_tracking.py"
    "::test_no_transcript_moves_a_message_further_than_certified": 4,
    "tests/algorithms/test_gradient_tracking.py"
    "::test_noise_free_error_vanishes_on_unbalanced_digraphs": 3,
    "tests/algorithms/test_ldp_online.py"
    "::test_tracking_error_falls_at_least_at_the_promised_rate": 1,
    "tests/audit/test_brute_force.py::test_a_scalar_quadratic_comes_close_to_the_certificate": 3,
    "tests/audit/test_brute_force.py::test_no_transcript_exceeds_the_certificate": 6,
    "tests/audit/test_faults.py::test_brute_force_catches_wrong_gaps": 4,
    "tests/audit/test_search.py"
    "::test_no_search_passes_the_certificate_and_scalar_quadratics_reach_it": 1,
    "tests/deploy/test_arithmetic.py::test_no_update_is_off_by_more_than_is_counted": 6,
    "tests/deploy/test_equivalence.py::test_every_algorithm_deployed_equals_simulated": 2,
    "tests/deploy/test_shared_runs.py::test_shared_noise_deployed_equals_simulated": 1,
    "tests/mechanisms/test_factorized.py::test_a_stream_keeps_as_many_vectors_as_it_promises": 3,
    "tests/mechanisms/test_factorized.py"
    "::test_compiled_rounds_outside_the_horizon_are_not_numbers": 4,
    "tests/mechanisms/test_factorized.py::test_covariance_of_the_prefix_sums": 4,
    "tests/mechanisms/test_factorized.py::test_single_precision_streams_agree_to_rounding": 4,
    "tests/mechanisms/test_factorized.py::test_streams_are_the_rows_of_the_product": 18,
    "tests/mechanisms/test_factorized.py::test_the_block_never_changes_the_noise": 4,
    "tests/mechanisms/test_factorized.py::test_the_pure_function_gives_the_same_rows": 7,
    "tests/mechanisms/test_quality.py::test_streams_of_an_algorithm": 3,
    "tests/mechanisms/test_quality.py::test_the_hole_of_the_simulation_in_single_precision": 1,
    "tests/problems/test_layers.py::test_convolution_and_its_derivatives_are_the_librarys": 4,
    "tests/problems/test_network.py::test_a_network_that_is_a_linear_model_takes_its_path": 1,
    "tests/problems/test_per_record.py::test_the_sum_is_that_of_a_plain_loop": 4,
    "tests/problems/test_sampling.py::test_drawn_batches_have_the_right_number_of_real_records": 4,
    "tests/problems/test_sampling.py"
    "::test_exposure_and_pattern_are_what_replacing_a_record_shows": 8,
    "tests/problems/test_sampling.py"
    "::test_exposure_and_pattern_of_a_size_are_what_replacing_a_record_shows": 4,
    "tests/problems/test_sampling.py::test_history_is_the_plain_mean_at_every_step": 10,
    "tests/problems/test_stream.py"
    "::test_a_batch_is_the_plain_mean_of_the_first_records_of_its_blocks": 3,
    "tests/simulation/test_budget_stop.py::test_no_certificate_is_above_its_budget": 20,
    "tests/test_contract.py::test_seeds_side_by_side_equal_seeds_one_by_one": 3,
    "tests/test_contract.py::test_simulator_equals_a_plain_loop_over_agents": 4,
    "tests/test_contract.py::test_traced_once_however_many_chunks": 3,
    "tests/simulation/test_metrics.py::test_no_model_inside_the_domain_has_negative_regret": 1,
    "tests/test_planning.py::test_never_less_privacy_than_asked": 6,
    "tests/algorithms/theory/test_correlated_federated.py"
    "::test_the_measured_regret_stays_below_the_bound": 1,
    "tests/deploy/test_equivalence.py::test_secret_batches_rehearsed_are_the_simulators": 2,
    "tests/deploy/test_releasing.py::test_a_rehearsed_network_releases_what_a_simulation_does": 1,
    "tests/audit/test_distinguish.py"
    "::test_subsets_that_a_certificate_takes_as_secret_are_drawn_anew_in_every_run": 1,
    "tests/audit/test_secret.py::test_a_coin_moves_one_message_as_far_as_it_may": 1,
    "tests/audit/test_secret.py::test_likelihood_ratios_of_secret_batches_are_exact": 1,
    "tests/deploy/test_coins.py::test_a_round_has_one_batch_whenever_the_agent_dies": 1,
    "tests/cli/test_gossip_package.py::test_it_is_run_certified_verified_and_reported": 1,
    "tests/deploy/test_relays.py::test_what_a_round_has_drawn_is_there_after_a_stop_in_a_relay": 1,
    "tests/deploy/test_transport.py::test_a_process_that_forgets_to_close_still_ends": 1,
    "tests/audit/test_emptied.py"
    "::test_no_transcript_moves_a_message_further_than_an_emptied_record_may": 1,
    "tests/deploy/test_equivalence.py"
    "::test_averaging_rounds_deployed_equal_simulated_ones_to_the_last_bit": 1,
    "tests/privacy/test_sampled.py::test_one_message_against_the_exact_likelihood_ratio": 2,
    "tests/audit/test_distinguish.py::test_likelihood_ratios_are_exact": 3,
    "tests/simulation/test_regret.py::test_the_models_are_those_of_a_session": 2,
    "tests/audit/test_search.py::test_small_steps_reach_the_certificate_on_a_history_too": 1,
}


def left_to_the_slow(found: dict[str, list]) -> list:
    """The items of `found` (test -> its cases) that are not among the first choice."""
    left = []
    for name, most in CASES.items():
        cases = found.get(name, [])
        kept = set(
            np.linspace(0, len(cases) - 1, min(most, len(cases))).round().astype(int).tolist()
        )
        left += [case for number, case in enumerate(cases) if number not in kept]
    return left
