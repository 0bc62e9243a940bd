//! Operations in the format of the script, and how they are combined into one call.

use std::collections::HashMap;
use std::hash::Hash;

use redis::Cmd;
use smallvec::SmallVec;

use crate::error::RedisStoreError;
use crate::format::names::Name;
use crate::format::number::Reader;
use crate::format::script_args::ScriptArgs;

/// Maximum number of operations per call.
pub(crate) const MAX_JOBS: usize = 64;
/// Maximum number of keys per call: more would block the server for too long. The short script
/// numbers them with one byte.
pub(crate) const MAX_KEYS: usize = 255;

/// The script of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    /// Takes on token buckets, one operation per caller: the short script.
    Short,
    #[default]
    Long,
}

/// Operation codes of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Take = 1,
    Reserve = 2,
    Peek = 3,
    Settle = 4,
    Release = 5,
    Renew = 6,
    Hold = 7,
    Reset = 8,
    Swap = 9,
    SyncPolicies = 10,
    Heartbeat = 11,
    Confirm = 12,
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    code: Code,
    /// Arguments of the operation besides its items.
    head: SmallVec<[u8; 16]>,
    items: SmallVec<[Item; 2]>,
}

/// One bucket of an operation: its keys, the script arguments, and operation-specific data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    pub(crate) entry: Option<Name>,
    /// Key of slots, of a policy history or of nodes.
    pub(crate) other: Option<Name>,
    pub(crate) args: Option<ScriptArgs>,
    pub(crate) tail: SmallVec<[u8; 40]>,
}

impl Job {
    pub(crate) fn new(code: Code) -> Self {
        Self { code, head: SmallVec::new(), items: SmallVec::new() }
    }

    pub(crate) fn head(&mut self) -> &mut SmallVec<[u8; 16]> {
        &mut self.head
    }

    pub(crate) fn push(&mut self, item: Item) {
        self.items.push(item);
    }

    pub(crate) fn with(mut self, item: Item) -> Self {
        self.items.push(item);
        self
    }

    /// Returns whether the short script can execute it.
    pub(crate) fn fits_short_script(&self) -> bool {
        let bucket = |item: &Item| item.args.as_ref().is_some_and(|args| args[0] == 1);
        self.code == Code::Take && self.items.iter().all(bucket)
    }

    pub(crate) fn keys(&self) -> usize {
        let keys =
            |item: &Item| usize::from(item.entry.is_some()) + usize::from(item.other.is_some());
        self.items.iter().map(keys).sum()
    }
}

/// Replies of the server: its time in microseconds, and bytes for each operation.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    pub(crate) now_us: u64,
    pub(crate) each: Vec<Vec<u8>>,
}

/// The operations of several callers in one call.
#[derive(Debug, Default)]
pub(crate) struct Batch<'j> {
    kind: ScriptKind,
    entries: Numbered<'j, Name>,
    others: Numbered<'j, Name>,
    distinct_args: Numbered<'j, ScriptArgs>,
    calls: u16,
    bytes: Vec<u8>,
}

impl<'j> Batch<'j> {
    /// Creates an empty call of this kind.
    pub(crate) fn new(kind: ScriptKind) -> Self {
        Self { kind, ..Self::default() }
    }

    pub(crate) fn kind(&self) -> ScriptKind {
        self.kind
    }

    /// Adds the operations of one caller, which are executed in order.
    pub(crate) fn add(&mut self, jobs: &'j [Job]) {
        if self.kind == ScriptKind::Short {
            return jobs.iter().for_each(|job| self.add_short(job));
        }
        self.calls += 1;
        // A call has at most 64 operations.
        self.bytes.push(u8::try_from(jobs.len()).unwrap_or(u8::MAX));
        for job in jobs {
            let start = self.bytes.len();
            let items = u8::try_from(job.items.len()).unwrap_or(u8::MAX);
            self.bytes.extend([0, 0, job.code as u8, items]);
            self.bytes.extend_from_slice(&job.head);
            for item in &job.items {
                let entry = item.entry.as_ref().map_or(0, |name| self.entries.number(name));
                let other = item.other.as_ref().map_or(0, |name| self.others.number(name));
                let args = item.args.as_ref().map_or(0, |args| self.distinct_args.number(args));
                for number in [entry, other, args] {
                    self.bytes.extend(number.to_le_bytes());
                }
                self.bytes.extend_from_slice(&item.tail);
            }
            let size = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
            self.bytes[start..start + 2].copy_from_slice(&size.to_le_bytes());
        }
    }

    /// Encodes a take for the short script.
    fn add_short(&mut self, job: &'j Job) {
        self.bytes.push(byte(job.items.len()));
        for item in &job.items {
            let entry = item.entry.as_ref().map_or(0, |name| self.entries.number(name));
            let args = item.args.as_ref().map_or(0, |args| self.distinct_args.number(args));
            self.bytes.extend([byte(entry.into()), byte(args.into())]);
        }
    }

    /// Builds the command.
    pub(crate) fn command(&self, command: &str, script: &str) -> Cmd {
        let (entries, others) = (&self.entries.all, &self.others.all);
        let mut cmd = Cmd::new();
        cmd.arg(command).arg(script).arg(entries.len() + others.len());
        for name in entries.iter().chain(others) {
            cmd.arg(name.as_bytes());
        }
        let mut head = Vec::with_capacity(4 + self.bytes.len());
        if self.kind == ScriptKind::Long {
            head.extend(u16::try_from(entries.len()).unwrap_or(u16::MAX).to_le_bytes());
            head.extend(self.calls.to_le_bytes());
        }
        head.extend_from_slice(&self.bytes);
        cmd.arg(head);
        for args in &self.distinct_args.all {
            cmd.arg(args.as_slice());
        }
        cmd
    }
}

/// A call has at most 255 keys, and no more items than keys.
fn byte(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// Distinct values in order of appearance, numbered from one.
#[derive(Debug)]
struct Numbered<'j, T> {
    all: Vec<&'j T>,
    numbers: HashMap<&'j T, u16>,
}

impl<T> Default for Numbered<'_, T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
    }
}

impl<'j, T: Eq + Hash> Numbered<'j, T> {
    fn number(&mut self, thing: &'j T) -> u16 {
        let next = u16::try_from(self.all.len() + 1).unwrap_or(u16::MAX);
        let number = *self.numbers.entry(thing).or_insert(next);
        if number == next {
            self.all.push(thing);
        }
        number
    }
}

/// Status of an operation, the first byte of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationStatus {
    Denied,
    Done,
    /// An entry is under another policy and must be converted first.
    Stale,
    /// The calendar windows of the caller do not include the server's time.
    OtherWindows,
    /// An earlier operation of the caller must be executed again first.
    Skipped,
    /// Not supported by the short script; nothing was done.
    Unsupported,
}

impl OperationStatus {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, RedisStoreError> {
        Ok(match reader.byte()? {
            0 => Self::Denied,
            1 => Self::Done,
            2 => Self::Stale,
            3 => return Err(RedisStoreError::Format(reader.byte()?)),
            4 => Self::OtherWindows,
            5 => Self::Skipped,
            6 => return Err(RedisStoreError::ForeignKey),
            7 => Self::Unsupported,
            _ => return Err(RedisStoreError::InvalidReply),
        })
    }
}
