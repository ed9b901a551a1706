use super::*;
use proptest::prelude::*;

/// A tree, to be written as a description.
#[derive(Clone, Debug)]
enum Value {
    Plain(Vec<u8>),
    Text(String),
    List(bool, Vec<Value>),
    Dictionary(Option<String>, Vec<(String, Value)>),
    Record(Vec<String>, Vec<Value>),
    Array(Vec<u64>),
}

fn text(value: &str) -> Vec<u8> {
    [&[7][..], &(value.len() as u32).to_le_bytes(), value.as_bytes()].concat()
}

fn name(value: &str) -> Vec<u8> {
    [&(value.len() as u16).to_le_bytes()[..], value.as_bytes()].concat()
}

impl Value {
    /// Appends the node; `data` is where the next array begins.
    fn write(&self, to: &mut Vec<u8>, data: &mut u64) {
        match self {
            Self::Plain(bytes) => to.extend(bytes),
            Self::Text(value) => to.extend(text(value)),
            Self::List(is_tuple, items) => {
                to.push(if *is_tuple { 10 } else { 9 });
                to.extend((items.len() as u32).to_le_bytes());
                items.iter().for_each(|item| item.write(to, data));
            }
            Self::Dictionary(class, items) => {
                match class {
                    None => to.push(11),
                    Some(class) => {
                        to.push(14);
                        to.extend(name(class));
                    }
                }
                to.extend((items.len() as u32).to_le_bytes());
                for (key, item) in items {
                    to.extend(text(key));
                    item.write(to, data);
                }
            }
            Self::Record(names, items) => {
                to.extend([12, 1]);
                to.extend(name("Sample"));
                to.extend((names.len() as u16).to_le_bytes());
                names.iter().for_each(|field| to.extend(name(field)));
                items.iter().for_each(|item| item.write(to, data));
            }
            Self::Array(shape) => {
                let offset = data.next_multiple_of(ALIGNMENT);
                array(to, 11, 4, offset, shape, &dense(shape));
                *data = offset + 4 * shape.iter().product::<u64>();
            }
        }
    }
}

fn dense(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at].max(1);
    }
    strides
}

fn array(to: &mut Vec<u8>, element: u8, size: u32, offset: u64, shape: &[u64], strides: &[u64]) {
    to.extend([13, 1, element]);
    to.extend(size.to_le_bytes());
    to.push(shape.len() as u8);
    to.extend(offset.to_le_bytes());
    shape.iter().chain(strides).for_each(|value| to.extend(value.to_le_bytes()));
}

fn one_array(element: u8, size: u32, offset: u64, shape: &[u64], strides: &[u64]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    array(&mut bytes, element, size, offset, shape, strides);
    bytes
}

fn value() -> impl Strategy<Value = Value> {
    let plain = prop_oneof![
        Just(vec![0]),
        Just(vec![2]),
        any::<i64>().prop_map(|value| [&[3][..], &value.to_le_bytes()].concat()),
        any::<f64>().prop_map(|value| [&[5][..], &value.to_le_bytes()].concat()),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|value| [
            &[8][..],
            &(value.len() as u32).to_le_bytes(),
            &value
        ]
        .concat()),
    ];
    let leaf = prop_oneof![
        plain.prop_map(Value::Plain),
        ".{0,12}".prop_map(Value::Text),
        proptest::collection::vec(0u64..6, 0..4).prop_map(Value::Array),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            (any::<bool>(), proptest::collection::vec(inner.clone(), 0..5))
                .prop_map(|(is_tuple, items)| Value::List(is_tuple, items)),
            (
                proptest::option::of("[A-Z][a-z]{0,5}"),
                proptest::collection::vec(("[a-z]{1,5}", inner.clone()), 0..4)
            )
                .prop_map(|(class, items)| Value::Dictionary(class, items)),
            proptest::collection::vec(("[a-z_][a-z0-9_]{0,5}", inner), 0..4).prop_map(|fields| {
                let (names, items) = fields.into_iter().unzip();
                Value::Record(names, items)
            }),
        ]
    })
}

fn written(value: &Value) -> (Vec<u8>, u64) {
    let (mut bytes, mut data) = (MAGIC.to_vec(), 0);
    value.write(&mut bytes, &mut data);
    (bytes, data)
}

proptest! {
    #[test]
    fn what_is_written_is_accepted_and_every_shorter_one_is_not(value in value()) {
        let (bytes, data) = written(&value);
        prop_assert_eq!(check(&bytes, (data, 0), |_| {}), Ok(()));
        for length in 0..bytes.len() {
            let accepted = check(&bytes[..length], (data, 0), |_| {}).is_ok();
            prop_assert!(!accepted, "cut at {}", length);
        }
        let mut longer = bytes;
        longer.push(0);
        let accepted = check(&longer, (data, 0), |_| {}).is_ok();
        prop_assert!(!accepted);
    }

    #[test]
    fn arrays_that_are_accepted_lie_within_the_data(
        value in value(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        less in 0u64..200,
    ) {
        let (mut bytes, data) = written(&value);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let data = data.saturating_sub(less);
        let mut arrays = Vec::new();
        let _ = check(&bytes, (data, 0), |array| arrays.push(array.clone()));
        for array in arrays {
            let size = i128::from(array.size);
            let last: i128 =
                array.shape.iter().zip(&array.strides).map(|(length, stride)| (i128::from(*length) - 1) * i128::from(*stride)).sum();
            let elements: i128 = array.shape.iter().map(|length| i128::from(*length)).product();
            if elements > 0 {
                prop_assert!(i128::from(array.offset) + (last + 1) * size <= i128::from(data), "{:?}", array);
                prop_assert!(elements * size <= i128::from(data));
            }
            prop_assert!(array.offset <= data);
        }
    }

    #[test]
    fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = check(&[&MAGIC[..], &bytes].concat(), (1 << 20, 0), |_| {});
    }
}

#[test]
fn extents_that_overflow_or_reach_outside_are_rejected() {
    let outside = [
        one_array(11, 4, 0, &[257], &[1]),
        one_array(11, 4, 64, &[256], &[1]),
        one_array(11, 4, 1, &[1], &[1]),
        one_array(11, 4, 0, &[2], &[u64::MAX]),
        one_array(11, 4, 0, &[2, 2], &[u64::MAX / 4, u64::MAX / 4]),
        one_array(11, 4, u64::MAX - 63, &[1], &[1]),
        one_array(11, 4, 0, &[u64::MAX], &[0]),
        // One element of memory as a thousand.
        one_array(11, 4, 0, &[1000], &[0]),
        one_array(11, 4, 2048, &[0], &[1]),
        one_array(11, 4, 0, &[1; 33], &[1; 33]),
    ];
    for bytes in outside {
        assert_eq!(check(&bytes, (1024, 0), |_| {}), Err(BadDescription::Extent), "{bytes:?}");
    }
    assert_eq!(check(&one_array(11, 4, 0, &[256], &[1]), (1024, 0), |_| {}), Ok(()));
    assert_eq!(check(&one_array(11, 4, 0, &[], &[]), (4, 0), |_| {}), Ok(()));
}

#[test]
fn arrays_on_the_gpu_lie_within_the_data_there() {
    let on_gpu = |mut bytes: Vec<u8>| {
        bytes[MAGIC.len() + 1] += 3;
        bytes
    };
    let mut found = Vec::new();
    let bytes = on_gpu(one_array(11, 4, 256, &[64], &[1]));
    assert_eq!(check(&bytes, (0, 512), |array| found.push(array.clone())), Ok(()));
    assert_eq!((found[0].framework, found[0].on_gpu), (1, true));
    assert_eq!(check(&bytes, (1024, 511), |_| {}), Err(BadDescription::Extent));
    assert_eq!(check(&one_array(11, 4, 256, &[64], &[1]), (511, 1024), |_| {}), Err(BadDescription::Extent));
    assert_eq!(
        check(&on_gpu(one_array(33, 4, 0, &[1], &[1])), (0, 64), |_| {}),
        Err(BadDescription::Element(33))
    );
    let mut unknown = one_array(11, 4, 0, &[], &[]);
    unknown[MAGIC.len() + 1] = 6;
    assert_eq!(check(&unknown, (64, 64), |_| {}), Err(BadDescription::Tag(6)));
}

#[test]
fn elements_of_another_size_than_their_type_are_rejected() {
    for (element, size) in [(11, 8), (0, 1), (22, 1), (62, 8), (32, 0), (33, 6), (32, u32::MAX)] {
        let bytes = one_array(element, size, 0, &[1], &[1]);
        assert_eq!(
            check(&bytes, (1 << 40, 0), |_| {}),
            Err(BadDescription::Element(element)),
            "{element} {size}"
        );
    }
}

#[test]
fn depth_and_count_are_bounded() {
    let nested = |depth: usize| [&MAGIC[..], &[9, 1, 0, 0, 0].repeat(depth), &[0]].concat();
    assert_eq!(check(&nested(MAX_DEPTH - 1), (0, 0), |_| {}), Ok(()));
    assert_eq!(check(&nested(MAX_DEPTH), (0, 0), |_| {}), Err(BadDescription::TooDeep));
    let many = |count: u32| [&MAGIC[..], &[9], &count.to_le_bytes(), &vec![0; count as usize]].concat();
    assert_eq!(check(&many(MAX_NODES as u32), (0, 0), |_| {}), Err(BadDescription::TooMany));
    assert_eq!(
        check(&[&MAGIC[..], &[9], &u32::MAX.to_le_bytes()].concat(), (0, 0), |_| {}),
        Err(BadDescription::Truncated)
    );
}

#[test]
fn names_are_identifiers_and_keys_are_hashable() {
    let record = |field: &str| [&MAGIC[..], &[12, 0], &name("Sample"), &[1, 0], &name(field), &[0]].concat();
    assert_eq!(check(&record("größe"), (0, 0), |_| {}), Ok(()));
    for field in ["", "1st", "a b", "a.b", "a\n", "__import__('os')"] {
        assert_eq!(check(&record(field), (0, 0), |_| {}), Err(BadDescription::Name), "{field}");
    }
    let own = |class: &str| [&MAGIC[..], &[14], &name(class), &[0; 4]].concat();
    assert_eq!(check(&own("OrderedDict"), (0, 0), |_| {}), Ok(()));
    assert_eq!(check(&own("os.system"), (0, 0), |_| {}), Err(BadDescription::Name));
    let dictionary = |key: &[u8]| [&MAGIC[..], &[11, 1, 0, 0, 0], key, &[0]].concat();
    assert_eq!(check(&dictionary(&[10, 1, 0, 0, 0, 2]), (0, 0), |_| {}), Ok(()));
    assert_eq!(check(&dictionary(&[9, 0, 0, 0, 0]), (0, 0), |_| {}), Err(BadDescription::Key));
    assert_eq!(
        check(&dictionary(&[10, 1, 0, 0, 0, 9, 0, 0, 0, 0]), (0, 0), |_| {}),
        Err(BadDescription::Key)
    );
}
