//! A slab with generational indices: a stale index finds nothing, never another entry.

/// Identifies one entry, and never a later one at the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    index: u32,
    /// Number of insertions so far when this entry was added, modulo 2^32.
    generation: u32,
}

/// Entries at stable indices, which are reused.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    /// Number of insertions so far, modulo 2^32.
    insertions: u32,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), insertions: 0 }
    }
}

impl<T> Slab<T> {
    /// Inserts a value. The caller bounds the number of entries, far below 2^32.
    pub(crate) fn insert(&mut self, value: T) -> Id {
        self.insertions = self.insertions.wrapping_add(1);
        let entry = Entry { generation: self.insertions, value: Some(value) };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
            }
        };
        Id { index, generation: self.insertions }
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let entry = self.entries.get(id.index as usize)?;
        if entry.generation == id.generation { entry.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.index as usize)?;
        if entry.generation == id.generation { entry.value.as_mut() } else { None }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries().map(|(_, value)| value)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (Id, &T)> {
        (0..).zip(&self.entries).filter_map(|(index, entry)| {
            let id = Id { index, generation: entry.generation };
            Some((id, entry.value.as_ref()?))
        })
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let entry = self.entries.get_mut(id.index as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value.take()?;
        self.free.push(id.index);
        if self.free.len() == self.entries.len() {
            // The slab is empty: free the memory of an earlier peak.
            self.entries.clear();
            self.free.clear();
            self.entries.shrink_to(64);
            self.free.shrink_to(64);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_index_finds_nothing() {
        let mut slab = Slab::default();
        let keeper = slab.insert("keeper");
        let old = slab.insert("old");
        assert_eq!(slab.remove(old), Some("old"));
        let new = slab.insert("new");
        assert_eq!(slab.get(old), None);
        assert_eq!(slab.remove(old), None);
        assert_eq!((slab.get(new), slab.get(keeper)), (Some(&"new"), Some(&"keeper")));
        assert_eq!(slab.iter().count(), 2);
    }
}
