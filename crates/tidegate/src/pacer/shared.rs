//! Waiting on a shared store: only the head of the queue talks to it.
//!
//! One driver at a time asks the store to reserve for the head, not further ahead than a quarter
//! of a second; the others of the queue cost the store nothing. A grant is told when its
//! reservation starts.

use std::time::Duration;

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
        let asking = Asking(self);
        let verdict = ticket.charge(self.bank(), LEAD).await;
        let receipt = match verdict {
            Verdict::Granted { receipt, wait } => {
                tokio::time::sleep(wait).await;
                Ok(receipt)
            }
            other => Err(other),
        };
        drop(asking);
        let unwanted = self.act(|state| {
            let now = self.now();
            match receipt {
                Ok(receipt) if !state.heart.is_waiting(id) => return Some(receipt),
                Ok(receipt) => state.heart.granted(id, receipt, now),
                Err(Verdict::Blocked { index, own, wait }) => {
                    let wait = wait.unwrap_or(ASK_AGAIN);
                    if state.heart.is_late(id, now.after(wait)) {
                        state.heart.refuse(id, Refused::TooLong(wait));
                    } else {
                        let wait = wait.saturating_sub(LEAD).max(Duration::from_millis(1));
                        let blocked = Verdict::Blocked { index, own, wait: Some(wait) };
                        state.apply(id, blocked, now);
                    }
                }
                Err(verdict) => state.apply(id, verdict, now),
            }
            None
        });
        if let Some(receipt) = unwanted {
            ticket.give_back(self.bank(), &receipt).await;
        }
    }
}

/// A driver that asks a shared store. However that ends, others may ask again.
struct Asking<'s>(&'s Scope);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.lock().asking = false;
    }
}
