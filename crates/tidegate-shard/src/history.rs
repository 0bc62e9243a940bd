//! The policy history of a limit in one shard.
//!
//! Every client numbers the revisions of its limits itself. The shard numbers them anew in the
//! order in which it learns of them, and stores these numbers in buckets. The policy that was set
//! last applies to all clients, in whatever order the shard learns of them: a client with an older
//! one adopts it. Clients say for how long they have had a policy, so their clocks do not matter.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;
use serde_json::Value;
use tidegate_core::{Limit, Policy, PolicyChange};

use crate::json::{self, Fields, FromJson};
use crate::message::LimitMessage;
use crate::policy::{ChangeMessage, PolicyMessage};

/// Format of a stored history.
const FORMAT: u32 = 1;
/// Maximum number of policies that a limit remembers.
const MAX_REVISIONS: usize = 256;
/// Maximum number of clients whose revisions are told apart. If there are more, the one that was
/// added first is forgotten, and its policy counts as new when it calls again.
const MAX_NODES: usize = 1_024;

/// The known policies of one limit.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The limit, with one revision per known policy.
    limit: Limit,
    /// Number of its first revision.
    first: u32,
    /// The newest revision of each client.
    nodes: Vec<(u64, u32)>,
    /// When the current policy was set, in nanoseconds on the clock of the shard.
    set_ns: u64,
    /// The client that brought it.
    set_by: Option<u64>,
}

/// A stored history.
#[derive(Serialize)]
struct Record {
    format: u32,
    first: u32,
    revisions: Vec<(ChangeMessage, PolicyMessage)>,
    nodes: Vec<(u64, u32)>,
    set_ns: u64,
    set_by: Option<u64>,
}

impl FromJson for Record {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        let format = fields.required("format")?;
        if format != FORMAT {
            return Err(alloc::format!(
                "has format {format}, but this version reads format {FORMAT}"
            ));
        }
        Ok(Self {
            format,
            first: fields.required("first")?,
            revisions: fields.required("revisions")?,
            nodes: fields.required("nodes")?,
            set_ns: fields.required("set_ns")?,
            set_by: fields.optional("set_by")?,
        })
    }
}

impl History {
    /// Creates the history of an inline limit, which never changes.
    pub(crate) fn inline(message: &LimitMessage) -> Result<Self, String> {
        let policy = message.policy.to_policy()?;
        let limit = match &message.schedule {
            Some(schedule) if schedule.chars().any(char::is_control) => {
                return Err("the name of a schedule has control characters".into());
            }
            Some(schedule) => Limit::inline_on(schedule, policy),
            None => Limit::inline(policy),
        };
        Ok(Self { limit, first: 0, nodes: Vec::new(), set_ns: 0, set_by: None })
    }

    /// Creates the history of a limit that the shard does not know.
    pub(crate) fn new(
        name: &str,
        node: Option<u64>,
        message: &LimitMessage,
        now_ns: u64,
    ) -> Result<Self, String> {
        let revisions = revisions(message)?;
        let limit = build(name, &revisions)?;
        let nodes = node.map(|node| (node, message.generation)).into_iter().collect();
        let set_ns = now_ns.saturating_sub(message.age_ns);
        Ok(Self { limit, first: 0, nodes, set_ns, set_by: node })
    }

    /// Adds what is new in the message of a client. Returns whether the history changed.
    pub(crate) fn learn(
        &mut self,
        node: Option<u64>,
        message: &LimitMessage,
        now_ns: u64,
    ) -> Result<bool, String> {
        let position = node.and_then(|node| self.nodes.iter().position(|(id, _)| *id == node));
        let known = position.map(|position| self.nodes[position].1);
        if known.is_some_and(|known| known >= message.generation) {
            return Ok(false);
        }
        let all = revisions(message)?;
        let set_ns = now_ns.saturating_sub(message.age_ns);
        // A time in the future is from before a step of the clock. Revisions of one client are
        // ordered by their numbers.
        let is_older = set_ns < self.set_ns.min(now_ns) && (node.is_none() || node != self.set_by);
        let new = match known {
            _ if is_older => Vec::new(),
            // Those after the last that is known of this client.
            Some(known) => {
                let count = usize::try_from(message.generation - known).unwrap_or(usize::MAX);
                all[all.len().saturating_sub(count)..].to_vec()
            }
            // An unknown client: its policies up to the one in force are not news.
            None => {
                let current = self.limit.policy();
                let after = all.iter().rposition(|(_, policy)| policy == current);
                all[after.map_or(0, |index| index + 1)..].to_vec()
            }
        };
        let mut changed = !new.is_empty();
        if changed {
            (self.set_ns, self.set_by) = (set_ns, node);
        }
        for (change, policy) in new {
            let revised = self.limit.revise(policy, change);
            self.limit = revised.map_err(|error| error.to_string())?;
        }
        if let Some(node) = node {
            changed = true;
            match position {
                Some(position) => self.nodes[position].1 = message.generation,
                None => {
                    if self.nodes.len() == MAX_NODES {
                        self.nodes.remove(0);
                    }
                    self.nodes.push((node, message.generation));
                }
            }
        }
        Ok(changed)
    }

    /// Decodes a stored history.
    pub(crate) fn decode(name: &str, bytes: &[u8]) -> Result<Self, String> {
        let record: Record = json::parse(bytes)
            .map_err(|error| alloc::format!("a stored policy history cannot be read: {error}"))?;
        let revisions = read_revisions(record.revisions.iter())?;
        let limit = build(name, &revisions)?;
        let Record { first, nodes, set_ns, set_by, .. } = record;
        Ok(Self { limit, first, nodes, set_ns, set_by })
    }

    /// Encodes the history.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let oldest =
            (0..=self.limit.generation()).find(|&g| self.limit.revisions_since(g).is_some());
        let oldest = oldest.unwrap_or(self.limit.generation());
        let revisions = self.limit.revisions_since(oldest).into_iter().flatten();
        let revisions: Vec<_> = revisions
            .map(|revision| (revision.change().into(), PolicyMessage::new(revision.policy())))
            .collect();
        let record = Record {
            format: FORMAT,
            first: self.first + oldest,
            revisions,
            nodes: self.nodes.clone(),
            set_ns: self.set_ns,
            set_by: self.set_by,
        };
        serde_json::to_vec(&record).unwrap_or_default()
    }

    /// Returns the limit under the current policy.
    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the number of the current policy.
    pub(crate) fn revision(&self) -> u32 {
        self.first + self.limit.generation()
    }

    /// Returns which generation of [`limit`](Self::limit) has this number; `u32::MAX` if it is
    /// forgotten.
    pub(crate) fn index_of(&self, revision: u32) -> u32 {
        revision.checked_sub(self.first).unwrap_or(u32::MAX)
    }
}

/// Returns the policies of a message, oldest first, with how buckets were converted to each.
fn revisions(message: &LimitMessage) -> Result<Vec<(PolicyChange, Policy)>, String> {
    if message.past.len() > MAX_REVISIONS {
        return Err(alloc::format!("a limit has at most {MAX_REVISIONS} earlier policies"));
    }
    let mut all = read_revisions(message.past.iter())?;
    all.push((message.change.into(), message.policy.to_policy()?));
    Ok(all)
}

fn read_revisions<'m>(
    revisions: impl Iterator<Item = &'m (ChangeMessage, PolicyMessage)>,
) -> Result<Vec<(PolicyChange, Policy)>, String> {
    revisions.map(|(change, policy)| Ok(((*change).into(), policy.to_policy()?))).collect()
}

fn build(name: &str, revisions: &[(PolicyChange, Policy)]) -> Result<Limit, String> {
    let ((_, first), later) = revisions.split_first().ok_or("a limit has no policy")?;
    let mut limit = Limit::named(name, *first).map_err(|error| error.to_string())?;
    for (change, policy) in later {
        limit = limit.revise(*policy, *change).map_err(|error| error.to_string())?;
    }
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(generation: u32, capacity: u64) -> LimitMessage {
        let policy = Policy::per_second(1).capacity(capacity).build().unwrap();
        LimitMessage {
            name: Some("a".into()),
            policy: PolicyMessage::new(&policy),
            generation,
            ..LimitMessage::default()
        }
    }

    #[test]
    fn newest_policy_applies_and_a_client_with_an_older_one_adopts_it() {
        let mut history = History::new("a", Some(1), &message(0, 10), 0).unwrap();
        assert!(history.learn(Some(1), &message(1, 4), 0).unwrap());
        assert!(!history.learn(Some(1), &message(0, 10), 0).unwrap(), "an old revision");
        assert_eq!((history.revision(), history.limit().policy().capacity()), (1, 4));
        // A new client with another policy, such as one that was restarted with a new file.
        assert!(history.learn(Some(2), &message(0, 7), 0).unwrap());
        assert!(!history.learn(Some(1), &message(1, 4), 0).unwrap());
        assert_eq!((history.revision(), history.limit().policy().capacity()), (2, 7));
        // A client without an id always has the newest policy.
        assert!(history.learn(None, &message(0, 9), 0).unwrap());
        assert!(!history.learn(None, &message(0, 9), 0).unwrap());
        assert_eq!(history.limit().policy().capacity(), 9);
    }

    /// The order in which a shard learns of policies is that of requests, not that of changes.
    #[test]
    fn policy_that_was_set_before_the_one_in_force_is_no_news() {
        let second = 1_000_000_000;
        let aged = |age_ns, message: LimitMessage| LimitMessage { age_ns, ..message };
        // A client changed the policy 5 s ago; another one has had the previous one for 60 s.
        let mut changed = aged(5 * second, message(1, 4));
        changed.past = alloc::vec![(ChangeMessage::default(), message(0, 10).policy)];
        let older = |age| aged(age * second, message(0, 10));
        let now = 1_000 * second;
        let mut history = History::new("a", Some(1), &changed, now).unwrap();
        assert!(history.learn(Some(2), &older(60), now).unwrap(), "the client is new");
        assert_eq!((history.revision(), history.limit().policy().capacity()), (1, 4));
        let mut history = History::new("a", Some(2), &older(60), now).unwrap();
        assert!(history.learn(Some(1), &changed, now).unwrap());
        assert_eq!((history.revision(), history.limit().policy().capacity()), (1, 4));
        let mut back = History::decode("a", &history.encode()).unwrap();
        assert!(back.learn(Some(3), &older(8), now + second).unwrap());
        assert_eq!(back.limit().policy().capacity(), 4);
        // Set after the change, so it is news; also after the clock has stepped back.
        assert!(back.learn(Some(4), &older(1), now + second).unwrap());
        assert_eq!(back.limit().policy().capacity(), 10);
        assert!(back.learn(Some(5), &aged(0, message(0, 3)), second).unwrap());
        assert_eq!(back.limit().policy().capacity(), 3);
        // The next revision of the same client is newer, whatever the clock did in between.
        assert!(back.learn(Some(5), &aged(9, message(1, 2)), second).unwrap());
        assert_eq!(back.limit().policy().capacity(), 2);
    }

    #[test]
    fn all_revisions_that_a_client_made_meanwhile_are_applied() {
        let mut history = History::new("a", Some(1), &message(0, 10), 0).unwrap();
        let mut later = message(2, 10);
        later.past = alloc::vec![(ChangeMessage::Reset, message(1, 5).policy)];
        assert!(history.learn(Some(1), &later, 0).unwrap());
        assert_eq!(history.revision(), 2, "back to the first policy, by way of a reset");
        assert!(!history.learn(Some(1), &later, 0).unwrap(), "sent again after a timeout");
    }

    #[test]
    fn histories_round_trip_and_numbers_stay_after_old_ones_are_forgotten() {
        let mut history = History::new("a", Some(1), &message(0, 1), 0).unwrap();
        for generation in 1..400 {
            history.learn(Some(1), &message(generation, u64::from(generation) + 1), 0).unwrap();
        }
        let back = History::decode("a", &history.encode()).unwrap();
        assert_eq!((back.revision(), history.revision()), (399, 399));
        assert_eq!(back.limit().policy(), history.limit().policy());
        assert_eq!(back.index_of(10), u32::MAX);
        assert_eq!(
            back.limit().revisions_since(back.index_of(398)).unwrap().count(),
            2,
            "the last two"
        );
        let newer = "{\"format\":2}";
        assert_eq!(
            History::decode("a", newer.as_bytes()).unwrap_err(),
            "a stored policy history cannot be read: has format 2, but this version reads format 1"
        );
    }

    #[test]
    fn number_of_clients_is_bounded() {
        let mut history = History::new("a", None, &message(0, 1), 0).unwrap();
        for node in 0..2_000 {
            history.learn(Some(node), &message(0, 1), 0).unwrap();
        }
        assert_eq!((history.nodes.len(), history.revision()), (MAX_NODES, 0));
    }
}
