//! Name of a topic as a key.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};

const SHORT_MAX: usize = 30;

/// A name whose bytes are in place unless it is long: comparing a key then reads no other memory than the table's, which with
/// thousands of topics would be in no cache of the processor.
pub enum Name {
    Short(u8, [u8; SHORT_MAX]),
    Long(Box<[u8]>),
}

impl Name {
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; SHORT_MAX];
        match bytes.get_mut(..name.len()) {
            Some(place) => {
                place.copy_from_slice(name);
                Name::Short(name.len() as u8, bytes)
            }
            None => Name::Long(name.into()),
        }
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        match self {
            Name::Short(size, bytes) => &bytes[..*size as usize],
            Name::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        Borrow::<[u8]>::borrow(self) == Borrow::<[u8]>::borrow(other)
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrow::<[u8]>::borrow(self).hash(state);
    }
}
