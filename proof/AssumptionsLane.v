(** Prints what each main theorem of the lane's files assumes: nothing. *)

From Wavelock Require Lane Lanes Refill Policies Admission FairBound Confluence.

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
Print Assumptions Confluence.diamond.
Print Assumptions Confluence.confluence.
Print Assumptions Confluence.try_breaks.
Print Assumptions Confluence.select_breaks.
Print Assumptions Admission.admit_sound.
Print Assumptions Admission.edf_meets_deadlines.
Print Assumptions Admission.admitted_meet_deadlines.
Print Assumptions Admission.every_release_meets.
