//! Writes the vocabulary of `tidegate_providers::tokens` to the file given as argument, from the
//! one in the crate `bpe-openai`. Run by `cargo xtask vocabulary`.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Number of the format, which `tokens/vocabulary.rs` describes.
const FORMAT: u8 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the file to write")?;
    let encoding = &bpe_openai::o200k_base().bpe;
    let count = u32::try_from(encoding.num_tokens())?;
    let mut file = GzEncoder::new(File::create(path)?, Compression::best());
    file.write_all(&[FORMAT])?;
    file.write_all(&count.to_le_bytes())?;
    let lengths = (0..count).map(|rank| u8::try_from(encoding.token_len(rank)));
    file.write_all(&lengths.collect::<Result<Vec<u8>, _>>()?)?;
    for rank in 0..count {
        file.write_all(encoding.token_bytes(rank))?;
    }
    file.finish()?;
    Ok(())
}
