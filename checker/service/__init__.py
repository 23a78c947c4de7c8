"""Checks all objects of the coordination service that a history has."""

from checker.service.check import ObjectVerdict, check_service

__all__ = ["ObjectVerdict", "check_service"]
