//! Retries of any function: with errors of any type, async or blocking.

use std::fmt;
use std::time::Duration;

use tidegate::now_or_never;
use tidegate_providers::Class;

use super::layer::RetryLayer;
use super::run::{GaveUp, Retryable, TimeBudget, run_within, run_within_pausing};

/// An error and the class that the program gave it.
struct Classified<E> {
    error: E,
    class: Class,
}

impl<E: fmt::Display> fmt::Display for Classified<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<E: fmt::Display> Retryable for Classified<E> {
    fn class(&self) -> Class {
        self.class
    }
}

impl RetryLayer {
    /// Calls a function until it succeeds or no retry is possible. `classify` returns the class of
    /// an error, which says whether and when a retry may help. A call in progress is not cancelled
    /// at the [deadline](Self::deadline).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use tidegate_llm::Class;
    /// use tidegate_llm::retry::RetryLayer;
    ///
    /// let retry = RetryLayer::new("ollama").max_retries(3).base_delay(Duration::from_millis(500));
    /// let mut calls = 0;
    /// let answer = retry.retry(|_: &String| Class::Transient, || {
    ///     calls += 1;
    ///     let result = if calls < 3 { Err("no answer".to_owned()) } else { Ok(42) };
    ///     async { result }
    /// });
    /// assert_eq!(answer.await, Ok(42));
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the last attempt.
    pub async fn retry<T, E, A>(
        &self,
        classify: impl Fn(&E) -> Class,
        mut attempt: impl FnMut() -> A,
    ) -> Result<T, E>
    where
        E: fmt::Display,
        A: Future<Output = Result<T, E>>,
    {
        let classify = &classify;
        let call = |_| {
            let attempt = attempt();
            async move { classified(attempt.await, classify) }
        };
        run_within(&self.policy, self.time_budget(), call).await.map_err(unclassified)
    }

    /// Calls a function like [`retry`](Self::retry), and blocks this thread between the attempts.
    /// Not for use inside a runtime.
    ///
    /// ```
    /// use std::io::{Error, ErrorKind};
    /// use std::time::Duration;
    /// use tidegate_llm::Class;
    /// use tidegate_llm::retry::RetryLayer;
    ///
    /// let retry = RetryLayer::new("ollama").max_retries(3).base_delay(Duration::from_millis(1));
    /// let classify = |error: &Error| match error.kind() {
    ///     ErrorKind::TimedOut => Class::Transient,
    ///     _ => Class::BadRequest,
    /// };
    /// let mut calls = 0;
    /// let answer = retry.retry_blocking(classify, || {
    ///     calls += 1;
    ///     if calls < 3 { Err(ErrorKind::TimedOut.into()) } else { Ok(42) }
    /// })?;
    /// assert_eq!((answer, calls), (42, 3));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the last attempt.
    pub fn retry_blocking<T, E: fmt::Display>(
        &self,
        classify: impl Fn(&E) -> Class,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let call = |_| std::future::ready(classified(attempt(), &classify));
        let pause = |delay| {
            block(delay);
            std::future::ready(())
        };
        let retries = run_within_pausing(&self.policy, self.time_budget(), call, pause);
        match now_or_never(retries) {
            Some(result) => result.map_err(unclassified),
            None => unreachable!("every future in it is ready at once"),
        }
    }

    fn time_budget(&self) -> TimeBudget {
        TimeBudget { deadline: self.policy.deadline, max_wait: None }
    }
}

#[expect(clippy::disallowed_methods, reason = "the caller asked to be blocked")]
fn block(delay: Duration) {
    std::thread::sleep(delay);
}

fn classified<T, E>(
    result: Result<T, E>,
    classify: &impl Fn(&E) -> Class,
) -> Result<T, Classified<E>> {
    result.map_err(|error| Classified { class: classify(&error), error })
}

fn unclassified<E>(gave_up: GaveUp<Classified<E>>) -> E {
    gave_up.error.error
}
