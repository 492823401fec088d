//! Enabling and disabling.

use super::attributes::{AttributeError, Attributes};
use super::group::Group;
use crate::CodecError;
use alloc::sync::Arc;
use zfolio_sys::lock::Mutex;

/// The switch and the settings: attributes change while disabled, engines work
/// while enabled.
#[derive(Default)]
pub struct Engines {
    inner: Mutex<Setup>,
}

#[derive(Default)]
struct Setup {
    attributes: Attributes,
    group: Option<Arc<Group>>,
}

impl Engines {
    /// The settings now.
    pub fn attributes(&self) -> Attributes {
        self.inner.lock().attributes
    }

    /// Changes one attribute by name.
    ///
    /// # Errors
    /// [`AttributeError::InUse`] while enabled; or as [`Attributes::set`].
    pub fn set(&self, name: &str, value: &str) -> Result<(), AttributeError> {
        let mut setup = self.inner.lock();
        if setup.group.is_some() {
            return Err(AttributeError::InUse);
        }
        setup.attributes.set(name, value)
    }

    /// Changes all attributes.
    ///
    /// # Errors
    /// [`AttributeError::InUse`] while enabled; or as [`Attributes::check`].
    pub fn replace(&self, attributes: Attributes) -> Result<(), AttributeError> {
        let mut setup = self.inner.lock();
        if setup.group.is_some() {
            return Err(AttributeError::InUse);
        }
        attributes.check()?;
        setup.attributes = attributes;
        Ok(())
    }

    /// Makes the queues of `engines` engines for units that `codec` compresses,
    /// with submitters on `cores` processors.
    ///
    /// # Errors
    /// [`EnableError::InUse`] when they are enabled; no memory for the buffers.
    pub fn enable(
        &self,
        engines: usize,
        cores: usize,
        codec: &dyn crate::Compressor,
    ) -> Result<Arc<Group>, EnableError> {
        let mut setup = self.inner.lock();
        if setup.group.is_some() {
            return Err(EnableError::InUse);
        }
        let capacity = codec.max_compressed_len(setup.attributes.unit);
        let group = Group::new(setup.attributes, engines, cores, capacity)?;
        let group = Arc::new(group);
        setup.group = Some(group.clone());
        Ok(group)
    }

    /// Has all engines leave, so that attributes may change.
    ///
    /// # Errors
    /// [`EnableError::InUse`] while contexts exist that submit, or an engine has
    /// not left within a second; they are as they were then, except that engines
    /// that did leave have left.
    pub fn disable(&self) -> Result<(), EnableError> {
        let mut setup = self.inner.lock();
        let Some(group) = &setup.group else {
            return Ok(());
        };
        if group.clients() > 0 {
            return Err(EnableError::InUse);
        }
        group.stop_all();
        if !group.await_stopped(1000) {
            return Err(EnableError::InUse);
        }
        setup.group = None;
        Ok(())
    }
}

/// Why engines were not enabled or disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnableError {
    /// They are in use.
    InUse,
    /// No memory for the descriptors' buffers.
    Workspace,
}

impl From<CodecError> for EnableError {
    fn from(_: CodecError) -> Self {
        Self::Workspace
    }
}

impl core::fmt::Display for EnableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::InUse => "the engines are in use",
            Self::Workspace => "no memory for the engines' buffers",
        })
    }
}

impl core::error::Error for EnableError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Codec;

    #[test]
    fn attributes_stay_while_enabled() {
        let engines = Engines::default();
        let codec = Codec::LZ4.compressor();
        engines.set("descriptors", "4").unwrap();
        let group = engines.enable(2, 2, &*codec).unwrap();
        assert_eq!(group.attributes().descriptors, 4);
        assert_eq!(engines.set("descriptors", "8"), Err(AttributeError::InUse));
        assert_eq!(
            engines.replace(Attributes::default()),
            Err(AttributeError::InUse)
        );
        let again = engines.enable(1, 1, &*codec);
        assert!(matches!(again, Err(EnableError::InUse)));
        engines.disable().unwrap();
        engines.set("descriptors", "8").unwrap();
        assert_eq!(engines.attributes().descriptors, 8);
    }
}
