//! Lending a context along a call, and its way home.
//!
//! A caller that has a context lends it to a callee that has none; the callee may lend it on. The context keeps the chain of lenders, the oldest
//! first, at most [`LOAN_DEPTH`] long.
//!
//! Contract: the time comes back to its lender exactly once, or the loan is cut by revocation. A lender that goes away from the middle of the
//! chain leaves no gap: the next older one inherits the way home. When the oldest goes, the whole chain is cut and the context is nobody's: its
//! holder loses it, and no lender gets time that was never its own.
//! A holder that goes away gives it back at once. Nothing here allocates or fails after its checks, so all of it may run while something ends.

use super::{ContextEventKind, ContextPhase, ContextRefusal, Fallback};
use crate::lane::Lane;
use crate::record::NIL;
use crate::types::Refusal;
use wavelock_abi::{ContextRef, CoroutineRef, Cycles};

/// The longest chain of loans.
pub const LOAN_DEPTH: u8 = 8;

/// A loan, kept by the reply object of the call that made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan {
    /// What was lent.
    pub context: ContextRef,
    /// By whom: the coroutine it goes back to.
    pub lender: CoroutineRef,
}

impl Lane {
    /// Whether a caller could lend its context to a callee now.
    ///
    /// # Errors
    /// Why not: see [`Lane::lend_context`].
    pub fn may_lend(&self, caller: CoroutineRef, callee: CoroutineRef) -> Result<ContextRef, ContextRefusal> {
        let (context, ..) = self.lendable(caller, callee)?;
        self.tier.as_ref().map(|tier| tier.reference(context)).ok_or(ContextRefusal::Off)
    }

    /// The slots of context, caller and callee of a loan that can be made.
    fn lendable(&self, caller: CoroutineRef, callee: CoroutineRef) -> Result<(u32, u32, u32), ContextRefusal> {
        let from = self.slab.live_slot(caller).map_err(ContextRefusal::Coroutine)?;
        let to = self.slab.live_slot(callee).map_err(ContextRefusal::Coroutine)?;
        if from == to || self.slab.hot(to).place.is_ended() {
            return Err(ContextRefusal::Coroutine(Refusal::Ended { state: self.state_of(to) }));
        }
        let tier = self.tier.as_ref().ok_or(ContextRefusal::Off)?;
        let context = tier.held_by(from);
        if context == NIL || tier.lent_by(from) != NIL {
            return Err(ContextRefusal::NothingToLend);
        }
        // A callee that lent its own time waits for that call: lending to it would close a circle.
        let held = if tier.lent_by(to) == NIL { tier.held_by(to) } else { tier.lent_by(to) };
        if held != NIL {
            return Err(ContextRefusal::CalleeHasContext { context: tier.reference(held) });
        }
        let depth = tier.context(context).depth;
        if depth >= LOAN_DEPTH {
            return Err(ContextRefusal::DepthExceeded { depth, most: LOAN_DEPTH });
        }
        Ok((context, from, to))
    }

    /// Lends the context of `caller` to `callee`, who are both on this lane. Whichever of them is in the middle of its slice has used `used` of it;
    /// a caller there must stop waiting, a callee there goes on with the rest of its slice on the context.
    ///
    /// # Errors
    /// The caller has none, the callee has one, the chain is full, or a reference is stale. Then the call goes on without a loan.
    pub fn lend_context(&mut self, caller: CoroutineRef, callee: CoroutineRef, used: Cycles) -> Result<Loan, ContextRefusal> {
        let (context, from, to) = self.lendable(caller, callee)?;
        let depth = self.tier_mut().context(context).depth;
        self.leave_holder(context, used);
        let tier = self.tier_mut();
        let entry = tier.context_mut(context);
        entry.lenders[usize::from(depth)] = from;
        entry.depth = depth + 1;
        entry.counts.donations += 1;
        tier.lent[from as usize] = context;
        self.hand_over(context, to, used);
        let (clock, tag) = (self.clock, self.holder_tag(context));
        let tier = self.tier_mut();
        tier.note(clock, context, tag, ContextEventKind::Donated { depth: depth + 1 });
        Ok(Loan { context: tier.reference(context), lender: caller })
    }

    /// Returns a loan: the newest goes to its lender with the context; an older one only leaves the chain, and its lender goes on without. A
    /// holder in the middle of its slice has used `used`. Gives whether the lender has its time back.
    ///
    /// # Errors
    /// There is no such loan any more.
    pub fn return_loan(&mut self, loan: Loan, used: Cycles) -> Result<bool, ContextRefusal> {
        let context = self.tier.as_ref().ok_or(ContextRefusal::Off)?.live_slot(loan.context).map_err(|_| ContextRefusal::NoLoan)?;
        let lender = self.slab.live_slot(loan.lender).map_err(|_| ContextRefusal::NoLoan)?;
        let tier = self.tier_mut();
        if tier.lent_by(lender) != context {
            return Err(ContextRefusal::NoLoan);
        }
        let entry = tier.context(context);
        let is_newest = entry.lenders[usize::from(entry.depth) - 1] == lender;
        self.leave_chain(context, lender);
        if is_newest {
            self.leave_holder(context, used);
            self.go_home(context, lender);
        }
        Ok(is_newest && self.tier_mut().held_by(lender) == context)
    }

    /// Takes a context from its holder, who lends it on, returns it or ends: what the holder used is charged, and it is left where it is.
    fn leave_holder(&mut self, context: u32, used: Cycles) {
        let (clock, by) = (self.clock, self.holder_tag(context));
        let tier = self.tier_mut();
        let entry = tier.context(context);
        let (holder, phase) = (entry.holder, entry.phase);
        if holder == NIL {
            return;
        }
        if phase == ContextPhase::Current {
            let elapsed = (clock + used.0).saturating_sub(tier.mark);
            tier.mark = clock + used.0;
            let entry = tier.context_mut(context);
            entry.consumed = entry.consumed.saturating_add(elapsed);
            entry.counts.consumed = entry.counts.consumed.saturating_add(Cycles(elapsed));
            let charged = entry.ring.charge(Cycles(elapsed));
            if let (Some(books), Some(by)) = (&mut tier.books, by) {
                books.charge(context, by, Cycles(elapsed), charged.overrun);
            }
        }
        self.take_from_holder(context, Fallback::BestEffort);
    }

    /// Takes a lender out of the chain; older and newer lenders close the gap.
    fn leave_chain(&mut self, context: u32, lender: u32) {
        let tier = self.tier_mut();
        tier.lent[lender as usize] = NIL;
        let entry = tier.context_mut(context);
        let depth = usize::from(entry.depth);
        if let Some(at) = entry.lenders[..depth].iter().position(|&slot| slot == lender) {
            entry.lenders.copy_within(at + 1..depth, at);
            entry.depth -= 1;
        }
    }

    /// Nobody lends a context any more.
    fn cut_chain(&mut self, context: u32) {
        let tier = self.tier_mut();
        let depth = usize::from(core::mem::take(&mut tier.context_mut(context).depth));
        for at in 0..depth {
            let lender = tier.context(context).lenders[at];
            tier.lent[lender as usize] = NIL;
        }
    }

    /// A context without a holder goes to a lender; one that has another by now leaves it to the next older, and the last to nobody.
    fn go_home(&mut self, context: u32, mut lender: u32) {
        while self.tier_mut().held_by(lender) != NIL {
            let entry = self.tier_mut().context_mut(context);
            if entry.depth == 0 {
                lender = NIL;
                break;
            }
            entry.depth -= 1;
            lender = entry.lenders[usize::from(entry.depth)];
            self.tier_mut().lent[lender as usize] = NIL;
        }
        if lender != NIL {
            self.hand_over(context, lender, Cycles::ZERO);
        }
        let (clock, tag) = (self.clock, self.holder_tag(context));
        let tier = self.tier_mut();
        let depth = tier.context(context).depth;
        tier.note(clock, context, tag, ContextEventKind::Returned { depth });
    }

    /// A coroutine ends or leaves the lane: it lends and holds nothing any more. Idempotent.
    pub(crate) fn leave_contexts(&mut self, slot: u32) {
        let tier = self.tier_mut();
        if slot as usize >= tier.by_coroutine.len() {
            return;
        }
        let lent = tier.lent_by(slot);
        if lent != NIL {
            if tier.context(lent).lenders[0] == slot {
                self.leave_holder(lent, Cycles::ZERO);
                self.cut_chain(lent);
            } else {
                self.leave_chain(lent, slot);
            }
        }
        let held = self.tier_mut().held_by(slot);
        if held != NIL {
            let _ = self.detach_holder(held);
            let entry = self.tier_mut().context_mut(held);
            if entry.depth > 0 {
                entry.depth -= 1;
                let lender = entry.lenders[usize::from(entry.depth)];
                self.tier_mut().lent[lender as usize] = NIL;
                self.go_home(held, lender);
            }
        }
        if self.slab.hot(slot).held.contains(crate::types::HoldReason::Throttled) {
            self.unstrand(slot);
        }
    }
}
