//! A codec as the command line names it.

use zfolio_runtime::options::Codec;

/// Codec and level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compressor(pub Codec);

impl Compressor {
    /// Reads `auto`, `lz4`, `zstd:3` ...
    ///
    /// # Errors
    /// When it names no codec of this build, or a level the codec does not have.
    pub fn parse(text: &str) -> Result<Self, String> {
        Codec::parse(text)
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// The name as the command line takes it.
    pub fn name(self) -> String {
        self.0.to_string()
    }
}
