//! Which requests the operations of one call become, and in which order.

use std::collections::HashMap;

use tidegate_core::Key;

/// Operations that are sent one after the other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Their shard; `None` for one operation on several shards.
    pub(crate) shard: Option<u32>,
    /// Their indices, in order.
    pub(crate) members: Vec<usize>,
}

/// Steps of chains. The chains of a step have no key in common and are sent at the same time; the
/// next step waits for all of them.
#[derive(Debug, Default)]
pub(crate) struct RequestPlan<'k> {
    steps: Vec<Vec<Chain>>,
    /// The step of the last operation on each key, and whether that spans shards.
    last: HashMap<Key<'k>, (usize, bool)>,
}

impl<'k> RequestPlan<'k> {
    /// Adds the next operation. A key is in one shard, so operations of one shard keep their order
    /// within its chain; they wait only for earlier ones that span shards.
    pub(crate) fn add(&mut self, index: usize, shard: Option<u32>, keys: Vec<Key<'k>>) {
        let spans = shard.is_none();
        let after = |key: &Key<'k>| {
            self.last.get(key).map_or(0, |(step, spanned)| step + usize::from(spans || *spanned))
        };
        let step = keys.iter().map(after).max().unwrap_or(0);
        if self.steps.len() <= step {
            self.steps.resize_with(step + 1, Vec::new);
        }
        let chains = &mut self.steps[step];
        match chains.iter_mut().find(|chain| !spans && chain.shard == shard) {
            Some(chain) => chain.members.push(index),
            None => chains.push(Chain { shard, members: vec![index] }),
        }
        for key in keys {
            self.last.insert(key, (step, spans));
        }
    }

    pub(crate) fn into_steps(self) -> Vec<Vec<Chain>> {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(operations: &[(Option<u32>, &[&'static str])]) -> Vec<Vec<Chain>> {
        let mut plan = RequestPlan::default();
        for (index, (shard, keys)) in operations.iter().enumerate() {
            plan.add(index, *shard, keys.iter().map(|key| Key::new(key)).collect());
        }
        plan.into_steps()
    }

    fn chain(shard: Option<u32>, members: &[usize]) -> Chain {
        Chain { shard, members: members.to_vec() }
    }

    #[test]
    fn operations_of_one_shard_are_one_chain() {
        let steps = plan(&[(Some(1), &["a"]), (Some(2), &["b"]), (Some(1), &["a"])]);
        assert_eq!(steps, [[chain(Some(1), &[0, 2]), chain(Some(2), &[1])]]);
    }

    #[test]
    fn operations_on_several_shards_wait_only_for_those_with_a_common_key() {
        let steps = plan(&[
            (None, &["a", "b"]),
            (None, &["c", "d"]),
            (Some(1), &["e"]),
            (Some(2), &["a"]),
            (None, &["b", "c"]),
            (Some(2), &["a"]),
            (None, &["a", "e"]),
        ]);
        let expected = [
            vec![chain(None, &[0]), chain(None, &[1]), chain(Some(1), &[2])],
            vec![chain(Some(2), &[3, 5]), chain(None, &[4])],
            vec![chain(None, &[6])],
        ];
        assert_eq!(steps, expected);
    }
}
