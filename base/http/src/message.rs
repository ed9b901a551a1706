//! Requests and answers.

/// A request: its first line and its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, and so on, as it was sent.
    pub method: String,
    /// Target of the request, as it was sent: neither decoded nor normalized.
    pub target: String,
    /// True if the server reserves room for the client's user.
    pub is_privileged: bool,
    /// Names and values of headers in their order; not all values are text.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
}

/// A header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<'a> {
    /// It is not there.
    Absent,
    /// It is there once, and is text.
    One(&'a str),
    /// It is there several times, or is not a text: a value to trust in nothing.
    Unclear,
}

impl Request {
    /// One without headers.
    #[must_use]
    pub fn new(method: &str, target: &str) -> Self {
        Self { method: method.into(), target: target.into(), ..Self::default() }
    }

    /// The same with a header more.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The part of the target before a question mark.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A header by its name, in whatever case.
    #[must_use]
    pub fn header(&self, name: &str) -> Header<'_> {
        let mut found = self.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        match (found.next(), found.next()) {
            (None, _) => Header::Absent,
            (Some((_, value)), None) => std::str::from_utf8(value).map_or(Header::Unclear, Header::One),
            (Some(_), Some(_)) => Header::Unclear,
        }
    }
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Code and reason, such as `200 OK`.
    pub status: &'static str,
    /// The body's type.
    pub content_type: &'static str,
    /// Further headers; those of length and connection are added.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// An answer with a body.
    #[must_use]
    pub fn new(status: &'static str, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type, headers: Vec::new(), body: body.into() }
    }

    /// One sentence.
    #[must_use]
    pub fn text(status: &'static str, sentence: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{sentence}\n"))
    }

    pub(crate) fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {}\r\nContent-Type: {}\r\n", self.status, self.content_type);
        for (name, value) in &self.headers {
            // A value of several lines would be headers of its own.
            let value: String = value.chars().filter(|c| !c.is_control()).collect();
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n", self.body.len()));
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_is_there_twice_has_no_value() {
        let header = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        let headers = vec![
            header("Host", b"a"),
            header("HOST", b"b"),
            header("Origin", b"o"),
            header("Cookie", b"\xff"),
        ];
        let request = Request { target: "/a?b?c".into(), headers, ..Request::default() };
        assert_eq!(request.path(), "/a");
        assert_eq!(request.header("host"), Header::Unclear);
        assert_eq!(request.header("origin"), Header::One("o"));
        assert_eq!(request.header("cookie"), Header::Unclear);
        assert_eq!(request.header("range"), Header::Absent);
    }

    #[test]
    fn a_header_of_an_answer_is_one_line() {
        let mut answer = Answer::text("200 OK", "x");
        answer.headers.push(("A", "b\r\nSet-Cookie: c".into()));
        assert!(answer.head().contains("\r\nA: bSet-Cookie: c\r\n"), "{}", answer.head());
    }
}
