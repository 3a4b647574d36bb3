//! Donation: lending a context along a call, and its return.
//!
//! A caller that holds a context lends it to a callee that holds none; the callee may lend it on.
//! The context keeps the chain of lenders, the oldest first, at most [`LOAN_DEPTH`] long.
//!
//! Contract: a context returns to its lender exactly once, or revocation cancels the loan. If a
//! lender in the middle of the chain ends, the chain closes over it and the context returns to the
//! next older one. If the oldest ends, to which the context is bound, the whole chain is canceled
//! and the context becomes idle: no borrower or lender inherits time it was not bound to. If the
//! holder ends, the context returns at once. Nothing here allocates or fails after its checks, so
//! it may run while coroutines end.
//!
//! Elsewhere: calls and reply objects (`system`).

use super::{ContextEventKind, ContextRefusal, Fallback, Payer};
use crate::lane::Lane;
use crate::record::NIL;
use crate::types::{HoldReason, Refusal};
use wavelock_abi::{ContextRef, CoroutineRef, Cycles};

/// The longest chain of loans.
pub const LOAN_DEPTH: u8 = 8;

/// A loan, part of the reply object of its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan {
    /// The context.
    pub context: ContextRef,
    /// Its lender, to which it returns.
    pub lender: CoroutineRef,
}

impl Lane {
    /// Checks a loan without making it; returns the context.
    ///
    /// # Errors
    /// Why not: see [`Lane::lend_context`].
    pub fn may_lend(
        &self,
        caller: CoroutineRef,
        callee: CoroutineRef,
    ) -> Result<ContextRef, ContextRefusal> {
        let (context, ..) = self.lendable(caller, callee)?;
        Ok(self.tier()?.reference(context))
    }

    /// Checks a loan; returns the slots of context, caller and callee.
    fn lendable(
        &self,
        caller: CoroutineRef,
        callee: CoroutineRef,
    ) -> Result<(u32, u32, u32), ContextRefusal> {
        let from = self.slab.live_slot(caller).map_err(ContextRefusal::Coroutine)?;
        let to = self.slab.live_slot(callee).map_err(ContextRefusal::Coroutine)?;
        if from == to || self.slab.hot(to).place.is_ended() {
            return Err(ContextRefusal::Coroutine(Refusal::Ended { state: self.state_of(to) }));
        }
        let tier = self.tier()?;
        let context = tier.held_by(from);
        if context == NIL || tier.lent_by(from) != NIL {
            return Err(ContextRefusal::NothingToLend);
        }
        // A callee that lent its own context waits for that call: a loan to it would close a cycle.
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

    /// Lends the context of `caller` to `callee`, both on this lane. The one that is in the middle
    /// of its slice has used `used` cycles of it; a caller must block next, a callee continues its
    /// slice on the context.
    ///
    /// # Errors
    /// The caller has none to lend, the callee has one, the chain is full, or a reference is stale.
    /// Then the call continues without a loan.
    pub fn lend_context(
        &mut self,
        caller: CoroutineRef,
        callee: CoroutineRef,
        used: Cycles,
    ) -> Result<Loan, ContextRefusal> {
        let (context, from, to) = self.lendable(caller, callee)?;
        self.leave_holder(context, used);
        let tier = self.tier_mut();
        let entry = tier.context_mut(context);
        entry.lenders[usize::from(entry.depth)] = from;
        entry.depth += 1;
        entry.counts.donations += 1;
        let depth = entry.depth;
        tier.lent[from as usize] = context;
        self.hand_over(context, to, used);
        self.note_context(context, ContextEventKind::Donated { depth });
        Ok(Loan { context: self.tier_mut().reference(context), lender: caller })
    }

    /// Returns a loan: the newest returns the context to its lender; an older one is removed from
    /// the chain, and its lender continues without. A holder in the middle of its slice has used
    /// `used` cycles of it. Returns whether the lender holds the context again.
    ///
    /// # Errors
    /// The loan was returned or canceled before.
    pub fn return_loan(&mut self, loan: Loan, used: Cycles) -> Result<bool, ContextRefusal> {
        let tier = self.tier()?;
        let context = tier.live_slot(loan.context).map_err(|_| ContextRefusal::NoLoan)?;
        let lender = self.slab.live_slot(loan.lender).map_err(|_| ContextRefusal::NoLoan)?;
        if tier.lent_by(lender) != context {
            return Err(ContextRefusal::NoLoan);
        }
        let entry = tier.context(context);
        let is_newest = entry.lenders[usize::from(entry.depth) - 1] == lender;
        self.leave_chain(context, lender);
        if is_newest {
            self.leave_holder(context, used);
            self.give_back(context, lender);
        }
        Ok(is_newest && self.tier_mut().held_by(lender) == context)
    }

    /// Takes a context from its holder, which lends it on, returns it or ends, after charging what
    /// the holder used. The holder continues as best effort.
    fn leave_holder(&mut self, context: u32, used: Cycles) {
        if self.tier_mut().payer == Payer::Context(context) {
            self.charge_until(self.clock + used.0);
        }
        self.take_from_holder(context, Fallback::BestEffort);
    }

    /// Removes a lender from the chain, which closes over it.
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

    /// Returns a context without a holder to `lender`, or if that holds another context now, to the
    /// next older lender without one. Idle if there is none.
    fn give_back(&mut self, context: u32, lender: u32) {
        let tier = self.tier_mut();
        let mut heir = Some(lender);
        while heir.is_some_and(|lender| tier.held_by(lender) != NIL) {
            heir = tier.pop_lender(context);
        }
        if let Some(lender) = heir {
            self.hand_over(context, lender, Cycles::ZERO);
        }
        let depth = self.tier_mut().context(context).depth;
        self.note_context(context, ContextEventKind::Returned { depth });
    }

    /// Ends all loans and the holding of a coroutine that ends or leaves the lane. Idempotent.
    pub(crate) fn leave_contexts(&mut self, slot: u32) {
        let tier = self.tier_mut();
        if slot as usize >= tier.by_coroutine.len() {
            return;
        }
        let lent = tier.lent_by(slot);
        if lent != NIL {
            if tier.context(lent).lenders[0] == slot {
                self.leave_holder(lent, Cycles::ZERO);
                while self.tier_mut().pop_lender(lent).is_some() {}
            } else {
                self.leave_chain(lent, slot);
            }
        }
        let held = self.tier_mut().held_by(slot);
        if held != NIL {
            self.detach_holder(held);
            if let Some(lender) = self.tier_mut().pop_lender(held) {
                self.give_back(held, lender);
            }
        }
        if self.slab.hot(slot).held.contains(HoldReason::Context) {
            self.unstrand(slot);
        }
    }
}
