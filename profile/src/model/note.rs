//! Remarks on a profile itself for its reader.

/// One sentence about the profile itself that its reader should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The file ends inside a frame: the job or its watcher was cut off.
    Truncated {
        /// Offset of the incomplete frame.
        at: u64,
        /// Bytes of it that are there.
        bytes: u64,
    },
    /// A frame's checksum or content is wrong.
    Damaged {
        /// Offset of the frame.
        at: u64,
        /// Bytes that had to be ignored.
        bytes: u64,
    },
    /// Frames of a type that this version does not know were passed over.
    UnknownFrames {
        /// Number of frames.
        count: u64,
    },
    /// Something the collector reported, in its own words.
    Collector(String),
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::Truncated { at, .. } => {
                write!(f, "the profile is cut off at byte {at}; everything before it is shown")
            }
            Note::Damaged { at, bytes } => {
                write!(f, "the profile is damaged at byte {at}; {bytes} bytes were ignored")
            }
            Note::UnknownFrames { count } => write!(
                f,
                "the profile holds {count} record(s) of a kind that this version of radrm does not know"
            ),
            Note::Collector(text) => f.write_str(text),
        }
    }
}
