//! The status codes this server sends, with their ready-made status lines.
//!
//! Stateless and complete: a code that is not here is never sent.

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal $reason:literal;)*) => {
        /// A final status code (RFC 9110 section 15).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Status {
            $($(#[$doc])* $name,)*
        }

        impl Status {
            /// All of them, ascending.
            pub const ALL: &[Status] = &[$(Status::$name,)*];

            /// The three digits as a number.
            pub const fn code(self) -> u16 {
                match self {
                    $(Status::$name => $code,)*
                }
            }

            /// The whole status line with its line end. The version is always the server's own, also
            /// towards an HTTP/1.0 client (RFC 9110 section 2.5).
            pub(crate) const fn line(self) -> &'static str {
                match self {
                    $(Status::$name => concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n"),)*
                }
            }
        }
    };
}

statuses! {
    /// 200
    Ok = 200 "OK";
    /// 202: a notification or response was taken.
    Accepted = 202 "Accepted";
    /// 204: a session ended, or an OPTIONS request.
    NoContent = 204 "No Content";
    /// 400
    BadRequest = 400 "Bad Request";
    /// 401
    Unauthorized = 401 "Unauthorized";
    /// 403: `Host` or `Origin` is not allowed.
    Forbidden = 403 "Forbidden";
    /// 404: another path, or a session that does not exist.
    NotFound = 404 "Not Found";
    /// 405
    MethodNotAllowed = 405 "Method Not Allowed";
    /// 406: the client accepts no form the server could send.
    NotAcceptable = 406 "Not Acceptable";
    /// 408
    RequestTimeout = 408 "Request Timeout";
    /// 413
    ContentTooLarge = 413 "Content Too Large";
    /// 414
    UriTooLong = 414 "URI Too Long";
    /// 415: not JSON, or encoded.
    UnsupportedMediaType = 415 "Unsupported Media Type";
    /// 417
    ExpectationFailed = 417 "Expectation Failed";
    /// 429
    TooManyRequests = 429 "Too Many Requests";
    /// 431
    HeaderFieldsTooLarge = 431 "Request Header Fields Too Large";
    /// 500
    InternalServerError = 500 "Internal Server Error";
    /// 501: unknown method or transfer coding.
    NotImplemented = 501 "Not Implemented";
    /// 503: at a cap, or shutting down.
    ServiceUnavailable = 503 "Service Unavailable";
    /// 505
    VersionNotSupported = 505 "HTTP Version Not Supported";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_carries_its_code() {
        for &status in Status::ALL {
            let line = status.line();
            assert!(line.starts_with(&format!("HTTP/1.1 {} ", status.code())), "{line}");
            assert!(line.ends_with("\r\n") && line.len() < 64, "{line}");
        }
        assert!(Status::ALL.is_sorted_by_key(|status| status.code()));
    }
}
