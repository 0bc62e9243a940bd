//! Waiting on a shared store: only the head of the queue talks to it.
//!
//! One driver at a time asks the store to reserve for the head, not further ahead than a quarter
//! of a second; the others of the queue cost the store nothing. A grant is told when its
//! reservation starts.

use std::time::Duration;

use tidegate_core::{Receipt, Time};

use super::heart::{Refused, Step};
use super::scope::{Scope, State};
use super::slab::Id;
use super::ticket::{Ticket, Verdict};

/// How far ahead a shared store is asked to reserve. Until then holds, priorities and changes of
/// policy still count for who goes next.
const LEAD: Duration = Duration::from_millis(250);

/// How often a shared store is asked again when nobody can say when a limit will be ready.
const ASK_AGAIN: Duration = Duration::from_millis(100);

impl Scope {
    /// The head, if a shared store is to be asked for it now and nobody does so already.
    pub(super) fn to_ask(&self, state: &mut State) -> Option<(Id, Ticket)> {
        if self.is_local() || state.asking {
            return None;
        }
        let Step::Try(id) = state.heart.next(self.now()) else { return None };
        let ticket = state.heart.ticket(id)?.clone();
        state.asking = true;
        Some((id, ticket))
    }

    /// Asks a shared store for the head, waits out a reservation, and grants it. Only the head
    /// talks to the store; if it has left meanwhile, what was reserved is given back.
    pub(super) async fn ask(&self, id: Id, ticket: Ticket) {
        let mut asking = Asking { scope: self, ticket, reserved: None };
        let verdict = asking.ticket.charge(self.bank(), LEAD).await;
        let verdict = match verdict {
            Verdict::Granted { receipt, wait, charged } => {
                asking.ticket.correct(&charged);
                asking.reserved = Some(receipt);
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                None
            }
            other => Some(other),
        };
        let unwanted = self.act(|state| {
            // Under one lock with what follows, or another driver would ask for the same head.
            state.asking = false;
            let receipt = asking.reserved.take();
            if !state.heart.is_waiting(id) {
                return receipt;
            }
            let now = self.now();
            match (receipt, verdict) {
                (Some(receipt), _) => {
                    state.heart.granted(id, receipt, now);
                    if let Some(ticket) = state.heart.ticket_mut(id) {
                        ticket.claims.clone_from(&asking.ticket.claims);
                    }
                }
                (None, Some(verdict)) => state.answer(id, verdict, now),
                (None, None) => {}
            }
            None
        });
        if let Some(receipt) = unwanted {
            asking.ticket.give_back(self.bank(), &receipt).await;
        }
    }

    /// What drivers had reserved that are gone, to be given back.
    pub(super) fn take_stranded(&self) -> Vec<(Ticket, Receipt)> {
        std::mem::take(&mut self.lock().stranded)
    }
}

impl State {
    /// Does what a shared store said of the head, other than a grant.
    fn answer(&mut self, id: Id, verdict: Verdict, now: Time) {
        let Verdict::Blocked { index, own, wait } = verdict else {
            return self.apply(id, verdict, now);
        };
        let wait = wait.unwrap_or(ASK_AGAIN);
        if self.heart.is_late(id, now.after(wait)) {
            self.heart.refuse(id, Refused::TooLong(wait));
        } else {
            let wait = wait.saturating_sub(LEAD).max(Duration::from_millis(1));
            self.apply(id, Verdict::Blocked { index, own, wait: Some(wait) }, now);
        }
    }
}

/// A driver that asks a shared store. However that ends, others may ask again, and what it had
/// reserved is given back. Only an answer that never comes, because the runtime is shut down while
/// the store is asked, may have been charged.
struct Asking<'s> {
    scope: &'s Scope,
    ticket: Ticket,
    reserved: Option<Receipt>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.scope.lock();
        state.asking = false;
        if let Some(receipt) = self.reserved.take() {
            state.stranded.push((self.ticket.clone(), receipt));
        }
    }
}
