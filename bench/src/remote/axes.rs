//! What is varied: how many callers, how many charges, which keys.

use crate::keys::Keys;

/// How many ask at the same time.
pub(super) const CALLERS: [usize; 3] = [1, 50, 500];
/// The most of them.
pub(super) const MAX_CALLERS: usize = 500;
/// Keys in all, where there are many.
const MANY: usize = 10_000;
/// How many requests are prepared; callers start at different ones.
const REQUESTS: usize = 1 << 16;

/// A point of the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) callers: usize,
    pub(super) charges: Charges,
    pub(super) distribution: KeyDistribution,
}

impl Point {
    /// All points, in groups that are compared with each other and so take turns: they differ in
    /// the number of charges.
    pub(super) fn groups() -> Vec<[Self; 2]> {
        let group = |distribution, callers| {
            Charges::ALL.map(|charges| Self { callers, charges, distribution })
        };
        let groups = |distribution| CALLERS.map(|callers| group(distribution, callers));
        KeyDistribution::ALL.into_iter().flat_map(groups).collect()
    }
}

/// How many charges a decision has.
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

/// How requests are spread over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyDistribution {
    /// Ten thousand, uniform.
    Many,
    /// All on one.
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

/// A key, and what peers call its bucket for each charge. They are made beforehand, so that
/// nobody but ours builds names while it is measured.
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

/// The keys that callers ask for, in order.
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
        let keys = match distribution {
            KeyDistribution::Many => &self.many,
            KeyDistribution::Hot => &self.hot,
        };
        keys.iter().cycle().skip(caller * REQUESTS / MAX_CALLERS)
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
