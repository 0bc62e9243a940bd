//! Locked cells of a short list of token buckets, for the fast path.

use tidegate_core::ExactTime;

use super::Table;
use crate::table::cell::{Cell, Tag};
use crate::table::line::LineGuard;

/// Several cells and the locks of their lines.
#[derive(Debug)]
pub(crate) struct CellRefs<'t, const N: usize> {
    lines: [Option<LineGuard<'t>>; N],
    /// Line and cell index of each bucket.
    cells: [(usize, usize); N],
}

impl<const N: usize> CellRefs<'_, N> {
    #[inline]
    pub(crate) fn tat(&self, index: usize) -> ExactTime {
        let (line, cell) = self.cells[index];
        self.lines[line].as_ref().map_or(ExactTime::ZERO, |line| line.cell(cell).tat())
    }

    #[inline]
    pub(crate) fn set_tat(&mut self, index: usize, tag: Tag, tat: ExactTime) {
        let (line, cell) = self.cells[index];
        if let Some(line) = &mut self.lines[line] {
            line.set(cell, Cell::from_bucket(tag, tat));
        }
    }
}

impl Table {
    /// Locks the home lines of several distinct token buckets. Returns `None` unless all are in
    /// their home lines with exactly these tags.
    #[inline]
    pub(crate) fn lock_buckets<const N: usize>(&self, tags: [Tag; N]) -> Option<CellRefs<'_, N>> {
        let segments = tags.map(|tag| self.directory.segment(tag.fingerprint()));
        let mut order: [usize; N] = std::array::from_fn(|index| index);
        let home = |index: usize| segments[index].home(tags[index].fingerprint());
        order.sort_unstable_by_key(|&index| home(index));
        let mut cells = CellRefs { lines: [const { None }; N], cells: [(0, 0); N] };
        let mut before = None;
        for (position, &index) in order.iter().enumerate() {
            let line = match before {
                Some((number, line)) if number == home(index) => line,
                _ => {
                    cells.lines[position] = Some(self.arena.line(home(index)).lock()?);
                    position
                }
            };
            before = Some((home(index), line));
            let cell = cells.lines[line].as_ref()?.find(tags[index])?;
            let known = self.directory.is_current(tags[index].fingerprint(), segments[index]);
            if !known {
                return None;
            }
            cells.cells[index] = (line, cell);
        }
        Some(cells)
    }
}
