//! The axes: number of callers, number of charges, distribution of keys.

use crate::keys::Keys;

/// Numbers of concurrent callers.
pub(super) const CALLERS: [usize; 3] = [1, 50, 500];
/// The largest of them.
pub(super) const MAX_CALLERS: usize = 500;
/// Number of keys in the uniform distribution.
const MANY: usize = 10_000;
/// Number of prepared requests; callers start at different ones.
const REQUESTS: usize = 1 << 16;

/// A point of the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) callers: usize,
    pub(super) charges: Charges,
    pub(super) distribution: KeyDistribution,
}

impl Point {
    /// All points, in groups that are compared and therefore measured alternately; they differ in
    /// the number of charges.
    pub(super) fn groups() -> Vec<[Self; 2]> {
        let group = |distribution, callers| {
            Charges::ALL.map(|charges| Self { callers, charges, distribution })
        };
        let groups = |distribution| CALLERS.map(|callers| group(distribution, callers));
        KeyDistribution::ALL.into_iter().flat_map(groups).collect()
    }
}

/// Number of charges of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charges {
    One,
    Three,
}

impl Charges {
    pub(super) const ALL: [Self; 2] = [Self::One, Self::Three];

    pub(super) const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Three => 3,
        }
    }
}

/// Distribution of requests over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyDistribution {
    /// Uniform over ten thousand keys.
    Many,
    /// All requests on one key.
    Hot,
}

impl KeyDistribution {
    pub(super) const ALL: [Self; 2] = [Self::Many, Self::Hot];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Many => "10 k",
            Self::Hot => "1",
        }
    }
}

/// A key, and its bucket names for the peers, built beforehand, so that only our contender builds
/// names during the measurement.
#[derive(Debug)]
pub(super) struct Key {
    names: [String; 3],
}

impl Key {
    fn new(name: &str) -> Self {
        Self { names: [name.to_owned(), format!("{name}tenant"), format!("{name}route")] }
    }

    pub(super) fn name(&self) -> &str {
        &self.names[0]
    }

    pub(super) fn names(&self, charges: Charges) -> &[String] {
        &self.names[..charges.count()]
    }
}

/// The keys of the requests, in order.
#[derive(Debug)]
pub(super) struct Orders {
    /// Every key once.
    pub(super) all: Vec<Key>,
    many: Vec<Key>,
    hot: Vec<Key>,
}

impl Orders {
    pub(super) fn new() -> Self {
        let keys = |names: &[String]| names.iter().map(|name| Key::new(name)).collect::<Vec<_>>();
        let prepared = Keys::uniform(MANY, REQUESTS, 1);
        let many = prepared.orders.first().map_or(&[][..], Vec::as_slice);
        let hot = prepared.all.first().map_or(&[][..], std::slice::from_ref);
        Self { all: keys(&prepared.all), many: keys(many), hot: keys(hot) }
    }

    /// The keys of one caller, without end.
    pub(super) fn of(
        &self,
        distribution: KeyDistribution,
        caller: usize,
    ) -> impl Iterator<Item = &Key> {
        (0..).map(move |index| self.at(distribution, caller, index))
    }

    /// A key of one caller, by the number of keys before it.
    pub(super) fn at(&self, distribution: KeyDistribution, caller: usize, index: usize) -> &Key {
        let keys = match distribution {
            KeyDistribution::Many => &self.many,
            KeyDistribution::Hot => &self.hot,
        };
        &keys[(caller * REQUESTS / MAX_CALLERS + index) % keys.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_start_at_different_keys_or_share_one() {
        let orders = Orders::new();
        let first = |distribution, caller| {
            orders.of(distribution, caller).next().unwrap().name().to_owned()
        };
        assert_ne!(first(KeyDistribution::Many, 0), first(KeyDistribution::Many, 499));
        assert_eq!(first(KeyDistribution::Hot, 0), first(KeyDistribution::Hot, 499));
        assert_eq!(
            orders
                .of(KeyDistribution::Many, 499)
                .nth(REQUESTS)
                .unwrap()
                .names(Charges::Three)
                .len(),
            3
        );
    }

    #[test]
    fn every_combination_is_a_point() {
        let points = Point::groups().concat();
        assert_eq!(points.len(), 12);
        assert!(
            points.iter().all(|point| points.iter().filter(|same| *same == point).count() == 1)
        );
    }
}
