(* Every main theorem, with what it assumes: each line printed must be
   "Closed under the global context". *)

From Wavelock Require Import Interleave Certificate Machine Invariants Parcels Waves
  Progress Acceptance Limits Example Snapshot.

(* 1. Canonical steps *)
Print Assumptions round_is_one_step.
Print Assumptions one_place.
Print Assumptions conservation.
Print Assumptions boot_inv.
Print Assumptions every_run_is_placed_and_conserved.
Print Assumptions concurrency_zero_is_refused.
Print Assumptions overrun_is_less_than_gap.
Print Assumptions every_wave_ends.
Print Assumptions frame_row.
Print Assumptions frame_ends_on_the_grid.

(* 2. One worker *)
Print Assumptions one_worker_state_for_state.
Print Assumptions one_worker_is_canonical.
Print Assumptions one_worker_wave_is_canonical.

(* 3. Any number of workers *)
Print Assumptions certificate_sound.
Print Assumptions refused_check_keeps_sets.
Print Assumptions step_local.
Print Assumptions own_groups_are_canonical.
Print Assumptions any_workers_are_canonical.
Print Assumptions covered_wave_is_canonical.
Print Assumptions a_state_states_its_layout.
Print Assumptions checked_checker_is_honest.
Print Assumptions accepted_grants_are_the_machine's.
Print Assumptions accepted_covers.
Print Assumptions certified_wave_is_canonical.
Print Assumptions certified_run_is_canonical.
Print Assumptions driver_is_canonical.
Print Assumptions driver_ends_canonically.
Print Assumptions workers_do_not_matter.
Print Assumptions arrival_order_does_not_matter.
Print Assumptions finishing_order_does_not_matter.
Print Assumptions arrivals_are_canonical.
Print Assumptions splitting_would_race.
Print Assumptions a_splitting_certificate_is_refused.
Print Assumptions an_empty_certificate_is_refused.
Print Assumptions example_finishes.
Print Assumptions example_on_two_workers.

(* 6. Snapshots *)
Print Assumptions restore_save.
Print Assumptions save_injective.
Print Assumptions restored_run_is_the_same.
