//! Names that may stand in labels: those of the configuration, and not too many of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// What stands for any name that is not configured.
pub(super) const OTHER: &str = "other";

/// How many names of one kind have series of their own. A configuration that changes all the time
/// could otherwise bring ever new ones.
pub(super) const MOST: usize = 1_000;

/// The names of one kind. A name that was configured once keeps its series, so that what was
/// counted does not vanish with it.
#[derive(Debug, Default)]
pub(super) struct Names(ArcSwap<BTreeSet<Arc<str>>>);

impl Names {
    /// These are configured as well.
    pub(super) fn add<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        let names: Vec<&str> = names.into_iter().collect();
        self.0.rcu(|known| {
            let mut known = BTreeSet::clone(known);
            for name in &names {
                if known.len() < MOST && !known.contains(*name) {
                    known.insert((*name).into());
                }
            }
            known
        });
    }

    /// The label for a name.
    pub(super) fn label(&self, name: &str) -> Arc<str> {
        self.0.load().get(name).cloned().unwrap_or_else(|| OTHER.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_gone_keeps_its_series_and_too_many_share_one() {
        let names = Names::default();
        assert_eq!(&*names.label("client"), OTHER);
        names.add(["client"]);
        names.add(["organization"]);
        assert_eq!(&*names.label("client"), "client");
        let many: Vec<String> = (0..MOST + 10).map(|n| format!("limit-{n:05}")).collect();
        names.add(many.iter().map(String::as_str));
        let labels: BTreeSet<_> = many.iter().map(|name| names.label(name)).collect();
        assert_eq!(labels.len(), MOST - 2 + 1);
    }
}
