//! Colour.

/// Puts ANSI sequences around text, or leaves it as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paint {
    /// True if the text goes to a terminal that shows colours.
    pub color: bool,
}

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// For titles.
    #[must_use]
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// For what frames the figures.
    #[must_use]
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// For a good outcome.
    #[must_use]
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// For a bad outcome.
    #[must_use]
    pub fn bad(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// For what a reader should not miss.
    #[must_use]
    pub fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }
}
