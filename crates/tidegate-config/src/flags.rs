//! Flags of the command line as a layer.

use std::fmt;

use crate::key::Key;
use crate::keys;
use crate::place::Place;
use crate::setting::Source;
use crate::tree::Leaf;
use crate::value::Value;

/// The flags that were given. `Debug` shows which, and not what they say: an address may hold a
/// password.
#[derive(Clone, Default)]
pub(crate) struct Flags(Vec<(Key, String)>);

impl Flags {
    /// Sets a flag. Of two for one key the later counts.
    pub(crate) fn set(&mut self, key: Key, text: String) {
        self.0.retain(|(known, _)| *known != key);
        self.0.push((key, text));
    }

    /// The flag that was given in this place.
    pub(crate) fn name_at(&self, at: usize) -> &'static str {
        self.0.get(at).map_or("", |(key, _)| key.flag())
    }

    /// What they say.
    pub(crate) fn leaves(&self) -> Vec<Leaf<'_>> {
        let mut leaves = Vec::new();
        for (at, (key, text)) in self.0.iter().enumerate() {
            let Some(known) = keys::find(&key.path().split('.').collect::<Vec<_>>()) else {
                continue;
            };
            let place = Place { source: Source::Flag, at: Some(at) };
            let names = key.path().split('.').map(ToOwned::to_owned).collect();
            let value = Value { node: known.shape().read(text), place };
            leaves.push(Leaf { names, value });
        }
        leaves
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(key, _)| key.flag())).finish()
    }
}
