(** Prints what each main theorem of the lane's files, and of the machines over it, assumes:
    nothing. *)

From Wavelock Require Lane Lanes Refill Policies Admission Shipped FairBound ShareBound Confluence
  Changes Systems.

Print Assumptions Lane.step_good.
Print Assumptions Lane.run_good.
Print Assumptions Lane.run_placed.
Print Assumptions Lane.one_place.
Print Assumptions Lane.run_conserved.
Print Assumptions Lane.row_conserved.
Print Assumptions Lanes.lanes_step_good.
Print Assumptions Lanes.lanes_good.
Print Assumptions Lanes.canonical_permutation.
Print Assumptions Lanes.canonical_sorted.
Print Assumptions Lanes.canonical_unique.
Print Assumptions Refill.run_total.
Print Assumptions Refill.run_sound.
Print Assumptions Refill.window.
Print Assumptions Refill.window_constant_bandwidth.
Print Assumptions Refill.revoked_never_runs.
Print Assumptions Policies.best_spec.
Print Assumptions Policies.choose_member.
Print Assumptions Policies.round_robin_bound.
Print Assumptions Policies.aging_bound.
Print Assumptions Policies.progress_other_bound.
Print Assumptions Policies.progress_holder_bound.
Print Assumptions Policies.fixed_no_bound.
Print Assumptions FairBound.fair_ahead.
Print Assumptions FairBound.fair_behind.
Print Assumptions FairBound.equal_start.
Print Assumptions FairBound.bound_is_a_slice.
Print Assumptions ShareBound.sessions_ahead.
Print Assumptions ShareBound.sessions_behind.
Print Assumptions ShareBound.coroutines_ahead.
Print Assumptions ShareBound.coroutines_behind.
Print Assumptions ShareBound.service_is_one.
Print Assumptions ShareBound.both_levels_ahead.
Print Assumptions ShareBound.equal_starts.
Print Assumptions Confluence.diamond.
Print Assumptions Confluence.confluence.
Print Assumptions Confluence.try_breaks.
Print Assumptions Confluence.select_breaks.
Print Assumptions Admission.admit_sound.
Print Assumptions Admission.edf_meets_deadlines.
Print Assumptions Admission.admitted_meet_deadlines.
Print Assumptions Admission.every_release_meets.
Print Assumptions Shipped.shipped_is_every_release.
Print Assumptions Shipped.kernel_terms_valid.
Print Assumptions Shipped.sporadic_windows.
Print Assumptions Shipped.shipped_meets_deadlines.
Print Assumptions Changes.tick_ticks.
Print Assumptions Changes.moved_close_wave.
Print Assumptions Systems.round_is_one_step.
Print Assumptions Systems.rounds_are_transitions.
Print Assumptions Systems.every_run_is_placed_and_conserved.
Print Assumptions Systems.step_local.
Print Assumptions Systems.one_worker_state_for_state.
Print Assumptions Systems.one_worker_is_canonical.
Print Assumptions Systems.one_worker_wave_is_canonical.
Print Assumptions Systems.own_groups_are_canonical.
Print Assumptions Systems.any_workers_are_canonical.
Print Assumptions Systems.certified_wave_is_canonical.
Print Assumptions Systems.certified_run_is_canonical.
Print Assumptions Systems.workers_do_not_matter.
