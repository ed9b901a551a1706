//! Resources of a device as programs name them: sets of multiprocessors that can be split, and the configuration of
//! work queues.
//!
//! A set of multiprocessors is a range of their numbers, so that disjoint sets are disjoint ranges. Programs carry it
//! around in a `CUdevResource`; what is not public of it stands in the padding, as with the real driver.

use core::ffi::c_void;

use radrm_cuda_abi::*;

use crate::util::ffi::Answer;

/// `CU_DEV_RESOURCE_TYPE_INVALID`.
const INVALID: u32 = 0;
/// `CU_DEV_RESOURCE_TYPE_SM`.
pub const SM: u32 = 1;
/// `CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG`.
pub const QUEUE_CONFIG: u32 = 1000;
/// `CU_DEV_RESOURCE_TYPE_WORKQUEUE`.
pub const QUEUE: u32 = 10000;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`.
const IGNORE_COSCHEDULING: u32 = 1;
/// `CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE`.
const MAX_CLUSTER: u32 = 2;
/// `CU_DEV_SM_RESOURCE_GROUP_BACKFILL`.
const BACKFILL: u32 = 1;
/// Smallest set, and what all sets are multiples of, where co-scheduling is ignored.
const FINEST: u32 = 2;
/// Marks a resource that this driver has written.
const MAGIC: u32 = 0x5244_524d;

/// `CUdevResource`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// `CUdevResourceType`.
    pub kind: u32,
    /// Part that only the driver knows.
    pub own: Own,
    padding: [u32; 17],
    /// `CUdevSmResource`, `CUdevWorkqueueConfigResource` or `CUdevWorkqueueResource`.
    pub value: [u32; 10],
    next: *mut c_void,
}

const _: () = assert!(size_of::<Resource>() == 144 && std::mem::offset_of!(Resource, value) == 96);

/// Part of a resource that only the driver knows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    magic: u32,
    /// Ordinal of the device.
    pub device: i32,
    /// Number of the first multiprocessor.
    pub first: u32,
    /// Number of multiprocessors; the public figure may be written over.
    pub count: u32,
    /// The split that it is from; 0 if a device or context gave it.
    pub split: u32,
    alignment: u32,
}

/// `CU_DEV_SM_RESOURCE_GROUP_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    /// Multiprocessors wanted, or 0: as many as there are.
    pub count: u32,
    /// Multiprocessors that are scheduled together, or 0: the device's figure.
    pub together: u32,
    /// A larger figure for the same that is nice to have.
    pub preferred: u32,
    /// Flags.
    pub flags: u32,
    rest: [u32; 12],
}

const _: () = assert!(size_of::<Group>() == 64);

/// Rules by which a device's multiprocessors can be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Fewest multiprocessors of a set.
    pub least: u32,
    /// Sets are multiples of this.
    pub alignment: u32,
}

impl Rules {
    /// Rules of an architecture, by its major number: from the programming guide's section on green contexts.
    pub fn of(major: u32) -> Self {
        match major {
            0..=6 => Self { least: 1, alignment: 1 },
            7 => Self { least: 2, alignment: 2 },
            8 => Self { least: 4, alignment: 2 },
            _ => Self { least: 8, alignment: 8 },
        }
    }
}

impl Resource {
    /// Nothing: what the remainder is when nothing remains.
    pub fn none() -> Self {
        Self {
            kind: INVALID,
            own: Own::default(),
            padding: [0; 17],
            value: [0; 10],
            next: core::ptr::null_mut(),
        }
    }

    /// A set of multiprocessors.
    pub fn multiprocessors(device: CUdevice, first: u32, count: u32, rules: Rules, split: u32) -> Self {
        let own = Own { magic: MAGIC, device, first, count, split, alignment: rules.alignment };
        let mut new = Self { kind: SM, own, ..Self::none() };
        // smCount, minSmPartitionSize, smCoscheduledAlignment
        new.value[..3].copy_from_slice(&[count, rules.least.min(count), rules.alignment]);
        new
    }

    /// The configuration of a device's work queues: how much stream-ordered work may run at a time.
    pub fn queue_config(device: CUdevice, concurrency: u32) -> Self {
        let own = Own { magic: MAGIC, device, ..Own::default() };
        let mut new = Self { kind: QUEUE_CONFIG, own, ..Self::none() };
        new.value[..3].copy_from_slice(&[device.cast_unsigned(), concurrency, 0]);
        new
    }

    /// The work queues of a context, by its number.
    pub fn queue(device: CUdevice, of: u64) -> Self {
        let own = Own { magic: MAGIC, device, ..Own::default() };
        let mut new = Self { kind: QUEUE, own, ..Self::none() };
        new.value[..2].copy_from_slice(&[of as u32, (of >> 32) as u32]);
        new
    }

    /// The set of multiprocessors that a program hands over.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_RESOURCE_TYPE for what is none, CUDA_ERROR_INVALID_VALUE for what no driver has written.
    pub fn as_multiprocessors(&self) -> Answer<Own> {
        if self.kind != SM {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        if self.own.magic == MAGIC { Ok(self.own) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }

    /// Checks that the resource can be part of a descriptor.
    ///
    /// # Errors
    /// As [`Self::as_multiprocessors`].
    pub fn check(&self) -> Answer {
        match self.kind {
            SM | QUEUE_CONFIG | QUEUE if self.own.magic == MAGIC => Ok(()),
            SM | QUEUE_CONFIG | QUEUE => Err(CUDA_ERROR_INVALID_VALUE),
            _ => Err(CUDA_ERROR_INVALID_RESOURCE_TYPE),
        }
    }
}

/// Sets that a split made, and what is left.
#[derive(Clone, Debug)]
pub struct Split {
    /// The sets.
    pub groups: Vec<Resource>,
    /// The rest; [`Resource::none`] if there is none.
    pub rest: Resource,
}

fn rest(of: Own, taken: u32, rules: Rules, split: u32) -> Resource {
    match of.count - taken {
        0 => Resource::none(),
        left => Resource::multiprocessors(of.device, of.first + taken, left, rules, split),
    }
}

/// Splits a set into at most `wanted` equal ones of at least `least` multiprocessors. `split` numbers the split.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for unknown flags and more multiprocessors than there are,
/// CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION for a set that comes from a split, and where not one set fits.
pub fn by_count(
    input: &Resource,
    major: u32,
    wanted: u32,
    flags: u32,
    least: u32,
    split: u32,
) -> Answer<Split> {
    let own = input.as_multiprocessors()?;
    if flags & !(IGNORE_COSCHEDULING | MAX_CLUSTER) != 0 || least > own.count {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if own.split != 0 || (flags & MAX_CLUSTER != 0 && major < 9) {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let mut rules = Rules::of(major);
    if flags & IGNORE_COSCHEDULING != 0 {
        rules = Rules { least: rules.least.min(FINEST), alignment: rules.alignment.min(FINEST) };
    }
    let size = least.max(rules.least).next_multiple_of(rules.alignment);
    let fit = own.count / size;
    if fit == 0 {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let count = wanted.min(fit);
    let group = |n| Resource::multiprocessors(own.device, own.first + n * size, size, rules, split);
    Ok(Split { groups: (0..count).map(group).collect(), rest: rest(own, count * size, rules, split) })
}

/// Splits a set into groups, each as `params` describes it, and writes the found numbers there. Groups of none are an
/// error if `results` are wanted.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for numbers that cannot be, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION where the
/// multiprocessors do not suffice.
pub fn by_groups(
    input: &Resource,
    major: u32,
    params: &mut [Group],
    results: bool,
    split: u32,
) -> Answer<Split> {
    let own = input.as_multiprocessors()?;
    let device = Rules::of(major);
    let (mut taken, mut groups) = (0, Vec::with_capacity(params.len()));
    for group in params {
        let most = if major >= 9 { 32 } else { FINEST };
        let together = if group.together == 0 { device.alignment.max(FINEST) } else { group.together };
        let backfill = group.flags & BACKFILL != 0;
        if group.flags & !BACKFILL != 0 || together % FINEST != 0 || together > most || group.rest != [0; 12]
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let left = own.count - taken;
        let size = match group.count {
            0 if backfill => left / FINEST * FINEST,
            0 => left / together * together,
            count => count,
        };
        let fits_structure = size % FINEST == 0 && (backfill || size % together == 0);
        if !fits_structure || size > own.count {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if size > left || (results && size < together) {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        group.count = size;
        let rules = Rules { least: device.least.min(size), alignment: together };
        groups.push(Resource::multiprocessors(own.device, own.first + taken, size, rules, split));
        taken += size;
    }
    Ok(Split { groups, rest: rest(own, taken, device, split) })
}

/// The multiprocessors of the resources of a descriptor, and the device.
///
/// # Errors
/// CUDA_ERROR_INVALID_RESOURCE_TYPE, and CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION where they are of several devices, or
/// sets of multiprocessors of several splits, or such that overlap.
pub fn together(resources: &[Resource]) -> Answer<(CUdevice, Vec<Own>)> {
    resources.iter().try_for_each(Resource::check)?;
    let device = resources.first().ok_or(CUDA_ERROR_INVALID_VALUE)?.own.device;
    let mut sets: Vec<Own> = resources.iter().filter(|r| r.kind == SM).map(|r| r.own).collect();
    sets.sort_unstable_by_key(|set| set.first);
    let same = |a: &Own, b: &Own| a.split == b.split && a.split != 0 && a.alignment == b.alignment;
    let fits = |pair: &[Own]| same(&pair[0], &pair[1]) && pair[0].first + pair[0].count <= pair[1].first;
    let configs = resources.iter().filter(|r| r.kind != SM).count();
    if resources.iter().any(|r| r.own.device != device) || configs > 1 || !sets.windows(2).all(fits) {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    Ok((device, sets))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(count: u32, major: u32) -> Resource {
        Resource::multiprocessors(0, 0, count, Rules::of(major), 0)
    }

    fn sizes(split: &Split) -> Vec<u32> {
        split.groups.iter().map(|g| g.own.count).collect()
    }

    #[test]
    fn sets_of_a_split_are_equal_disjoint_and_as_large_as_the_architecture_asks() {
        for (count, major, least, flags, expected, left) in [
            (108, 8, 0, 0, vec![4; 27], 0),
            (108, 8, 5, 0, vec![6; 18], 0),
            (108, 8, 40, 0, vec![40; 2], 28),
            (132, 9, 1, 0, vec![8; 16], 4),
            (132, 9, 20, 0, vec![24; 5], 12),
            (132, 9, 1, IGNORE_COSCHEDULING, vec![2; 66], 0),
        ] {
            let split = by_count(&all(count, major), major, u32::MAX, flags, least, 1).unwrap();
            assert_eq!(sizes(&split), expected, "{count} {major} {least}");
            let mut next = 0;
            for group in &split.groups {
                assert_eq!(group.own.first, next);
                next += group.own.count;
            }
            assert_eq!(split.rest.own.count, left);
            assert_eq!(split.rest.kind == INVALID, left == 0);
        }
    }

    #[test]
    fn what_a_split_gave_is_not_split_again() {
        let split = by_count(&all(108, 8), 8, 2, 0, 20, 1).unwrap();
        assert_eq!(sizes(&split), [20, 20]);
        for part in split.groups.iter().chain([&split.rest]) {
            assert_eq!(by_count(part, 8, 1, 0, 4, 2).err(), Some(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION));
        }
    }

    #[test]
    fn splits_that_cannot_be_are_refused() {
        let input = all(108, 8);
        assert_eq!(by_count(&input, 8, 1, 0, 109, 1).err(), Some(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(by_count(&input, 8, 1, 4, 1, 1).err(), Some(CUDA_ERROR_INVALID_VALUE));
        let too_small = by_count(&all(6, 9), 9, 1, 0, 1, 1).err();
        assert_eq!(too_small, Some(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION));
        assert_eq!(by_count(&Resource::none(), 8, 1, 0, 1, 1).err(), Some(CUDA_ERROR_INVALID_RESOURCE_TYPE));
        let foreign = Resource { own: Own::default(), ..input };
        assert_eq!(by_count(&foreign, 8, 1, 0, 1, 1).err(), Some(CUDA_ERROR_INVALID_VALUE));
    }

    #[test]
    fn groups_take_what_they_ask_for_one_after_another() {
        let group = |count, together, flags| Group { count, together, flags, ..Group::default() };
        let mut params = [group(10, 2, 0), group(0, 0, 0)];
        let split = by_groups(&all(132, 9), 9, &mut params, true, 1).unwrap();
        assert_eq!(sizes(&split), [10, 120], "all that is left, in eights");
        assert_eq!((params[1].count, params[1].together, split.rest.own.count), (120, 0, 2));
        let mut odd = [group(7, 2, 0)];
        assert_eq!(by_groups(&all(132, 9), 9, &mut odd, true, 1).err(), Some(CUDA_ERROR_INVALID_VALUE));
        let mut filled = [group(12, 8, BACKFILL)];
        assert_eq!(sizes(&by_groups(&all(132, 9), 9, &mut filled, true, 1).unwrap()), [12]);
        let mut all_twice = [group(132, 2, 0), group(2, 2, 0)];
        let error = by_groups(&all(132, 9), 9, &mut all_twice, true, 1).err();
        assert_eq!(error, Some(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION));
        let mut nothing_left = [group(132, 2, 0), group(0, 2, 0)];
        assert!(by_groups(&all(132, 9), 9, &mut nothing_left, true, 1).is_err());
        nothing_left[1].count = 0;
        assert!(by_groups(&all(132, 9), 9, &mut nothing_left, false, 1).is_ok(), "it was only asked");
    }

    #[test]
    fn a_descriptor_has_parts_of_one_split_and_one_device() {
        let wrong = Some(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        let input = all(108, 8);
        let one = by_count(&input, 8, 2, 0, 20, 1).unwrap();
        let other = by_count(&input, 8, 2, 0, 20, 2).unwrap();
        assert!(together(&one.groups).is_ok() && together(&[one.groups[0], one.rest]).is_ok());
        assert_eq!(together(&[one.groups[0], other.groups[1]]).err(), wrong);
        assert_eq!(together(&[one.groups[0], one.groups[0]]).err(), wrong);
        assert_eq!(together(&[input, one.rest]).err(), wrong);
        let elsewhere = Resource::queue_config(1, 8);
        assert_eq!(together(&[input, elsewhere]).err(), wrong);
        assert!(together(&[input, Resource::queue_config(0, 8)]).is_ok());
        assert_eq!(together(&[Resource::none()]).err(), Some(CUDA_ERROR_INVALID_RESOURCE_TYPE));
        assert_eq!(together(&[]).err(), Some(CUDA_ERROR_INVALID_VALUE));
    }
}
