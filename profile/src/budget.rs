//! Memory that decoded records may take.
//!
//! A frame of some hundred kilobytes can hold millions of elements, each much larger in memory than in the file. So every
//! element of a list is charged before it is decoded, by its size in memory.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use std::cell::Cell;
use std::fmt;

/// Memory that one record may take, bytes. The largest that is written is the state of a process with 16 whole timelines,
/// 22 MiB.
pub(crate) const MAX_RECORD: usize = 28 << 20;
/// Memory that each record takes at least, bytes: small ones hold more than their texts and lists.
const MIN_RECORD: usize = 64;

thread_local! {
    /// Bytes that the record may still take; `None` once it was refused some.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Charges bytes of the record that is being decoded.
///
/// # Errors
/// If the record takes more than it may.
pub(crate) fn claim<E: Error>(bytes: usize) -> Result<(), E> {
    LEFT.set(LEFT.get().and_then(|left| left.checked_sub(bytes)));
    LEFT.get().map(drop).ok_or_else(|| E::custom("a record that takes too much memory"))
}

/// Decodes one record with as much memory as one may take, and as there is room for. Gives what is left of the room, too;
/// `None` if the record would take more, though no more than a writer's may.
pub(crate) fn within<T>(room: usize, max_record: usize, decode: impl FnOnce() -> T) -> (T, Option<usize>) {
    let most = max_record.min(room);
    LEFT.set(most.checked_sub(MIN_RECORD));
    let decoded = decode();
    // One that was refused had all that it may take.
    let taken = LEFT.get().map_or(most, |left| most - left);
    let is_over = LEFT.get().is_none() && most < MAX_RECORD;
    (decoded, (!is_over).then_some(room - taken))
}

/// Anything of a deserializer, whose lists are charged. `LIST`: what is visited is a list or a map, not a struct.
pub(crate) struct Charged<T, const LIST: bool = false>(pub(crate) T);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Charged<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Charged(deserializer))
    }
}

macro_rules! plain {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(Charged::<V, false>(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Charged<D> {
    type Error = D::Error;

    plain! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_option deserialize_unit deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_seq(Charged::<V, true>(visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Charged::<V, true>(visitor))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, Charged::<V, false>(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Charged::<V, false>(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(len, Charged::<V, false>(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, len, Charged::<V, false>(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Charged::<V, false>(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, Charged::<V, false>(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! values {
    ($($method:ident: $type:ty,)*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

macro_rules! texts {
    ($($method:ident: $type:ty,)*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            claim(value.len())?;
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>, const LIST: bool> Visitor<'de> for Charged<V, LIST> {
    type Value = V::Value;

    values! {
        visit_bool: bool, visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128,
        visit_u8: u8, visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128,
        visit_f32: f32, visit_f64: f64, visit_char: char,
    }

    texts! {
        visit_str: &str, visit_borrowed_str: &'de str, visit_string: String,
        visit_bytes: &[u8], visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Charged(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Charged(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Charged::<A, LIST>(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Charged::<A, LIST>(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Charged::<A, false>(variant))
    }
}

impl<'de, A: SeqAccess<'de>, const LIST: bool> SeqAccess<'de> for Charged<A, LIST> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        if LIST {
            claim(size_of::<S::Value>())?;
        }
        self.0.next_element_seed(Charged::<S, false>(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        // What the file says of itself reserves nothing.
        self.0.size_hint().filter(|_| !LIST)
    }
}

impl<'de, A: MapAccess<'de>, const LIST: bool> MapAccess<'de> for Charged<A, LIST> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        claim(size_of::<S::Value>())?;
        self.0.next_key_seed(Charged::<S, false>(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        claim(size_of::<S::Value>())?;
        self.0.next_value_seed(Charged::<S, false>(seed))
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Charged<A> {
    type Error = A::Error;
    type Variant = Charged<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Charged<A::Variant>), A::Error> {
        let (value, variant) = self.0.variant_seed(seed)?;
        Ok((value, Charged(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Charged<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Charged::<S, false>(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Charged::<V, false>(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Charged::<V, false>(visitor))
    }
}
