//! The tables of decisions: a line for each case, a column for each contender and each ratio.

use std::fmt::{Result, Write as _};

use crate::core::axis::Axis;
use crate::core::contenders::role::Role;
use crate::core::results::Results;
use crate::report::cell;

/// One table.
#[derive(Debug)]
pub(in crate::core) struct Table {
    title: &'static str,
    axis: Axis,
    roles: &'static [Role],
    /// How many times as long the first takes as the second.
    ratios: &'static [(&'static str, Role, Role)],
}

pub(in crate::core) const ALL: [Table; 4] = [
    Table {
        title: "Without keys, by the time of the moment.",
        axis: Axis::Unkeyed,
        roles: &Role::EXACT,
        ratios: &[
            ("governor / ours", Role::GovernorDirect, Role::Direct),
            ("ours / floor", Role::Direct, Role::Cell),
        ],
    },
    Table {
        title: "Without keys, by a cached clock; leaky-bucket reads none while its tokens last.",
        axis: Axis::Unkeyed,
        roles: &Role::CACHED,
        ratios: &[
            ("governor / ours", Role::GovernorDirectCached, Role::DirectCached),
            ("ours / floor", Role::DirectCached, Role::CellCached),
        ],
    },
    Table {
        title: "With keys, uniform unless said otherwise.",
        axis: Axis::Keyed,
        roles: &Role::KEYED,
        ratios: &[
            ("governor / ours", Role::Governor, Role::Spend),
            ("governor, fast hasher / ours", Role::GovernorFastHash, Role::Spend),
            ("ours / floor", Role::Spend, Role::Flat),
        ],
    },
    Table {
        title: "With keys, sixteen at a time.",
        axis: Axis::Batch,
        roles: &Role::BATCH,
        ratios: &[("ours / floor", Role::Many, Role::FlatBatched)],
    },
];

impl Table {
    /// Writes nothing if nothing was measured.
    pub(in crate::core) fn write(&self, text: &mut String, results: &Results) -> Result {
        if results.of(self.axis).next().is_none() {
            return Ok(());
        }
        let roles = self.roles.iter().map(|role| role.name());
        let names: Vec<_> = roles.chain(self.ratios.iter().map(|(name, ..)| *name)).collect();
        writeln!(text, "\n{}\n\n| | threads | {} |", self.title, names.join(" | "))?;
        let lines = "| --- ".repeat(self.roles.len()) + &"| ---: ".repeat(self.ratios.len());
        writeln!(text, "| --- | ---: {lines}|")?;
        for point in results.of(self.axis) {
            write!(text, "| {} | {} |", point.case.name(), point.threads)?;
            for role in self.roles {
                write!(text, " {} |", point.figure(*role).map(cell).unwrap_or_default())?;
            }
            for (_, first, second) in self.ratios {
                let ratio = point.ratio(*first, *second).map(|ratio| format!("{ratio:.2}"));
                write!(text, " {} |", ratio.unwrap_or_default())?;
            }
            writeln!(text)?;
        }
        Ok(())
    }
}
