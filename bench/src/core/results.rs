//! The results of all axes.

use crate::core::axis::footprint::Footprint;
use crate::core::axis::growth::Size;
use crate::core::axis::new_keys::Pauses;
use crate::core::axis::sweep::Sweep;
use crate::core::axis::{Axis, Case};
use crate::core::contenders::role::Role;
use crate::measure::Figure;

/// Nanoseconds per decision and thread of all contenders in one case.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) axis: Axis,
    pub(super) case: Case,
    pub(super) threads: usize,
    pub(super) figures: Vec<(Role, Figure)>,
}

impl Point {
    pub(super) fn figure(&self, wanted: Role) -> Option<&Figure> {
        self.figures.iter().find(|(role, _)| *role == wanted).map(|(_, figure)| figure)
    }

    /// How many times as long the first takes as the second, by their medians.
    pub(super) fn ratio(&self, first: Role, second: Role) -> Option<f64> {
        Some(self.figure(first)?.median / self.figure(second)?.median)
    }
}

/// All results; empty for axes that were not measured.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) points: Vec<Point>,
    /// Nanoseconds for a new key.
    pub(super) new_keys: Vec<(Role, Figure)>,
    pub(super) pauses: Vec<(Role, Pauses)>,
    pub(super) footprints: Vec<Footprint>,
    pub(super) growth: Vec<Size>,
    pub(super) sweeps: Vec<Sweep>,
}

impl Results {
    pub(super) fn of(&self, axis: Axis) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.axis == axis)
    }

    pub(super) fn point(&self, axis: Axis, case: Case, threads: usize) -> Option<&Point> {
        self.of(axis).find(|point| point.case == case && point.threads == threads)
    }
}
